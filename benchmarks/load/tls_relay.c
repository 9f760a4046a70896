/* tls_relay.c - what TLS costs a server that does nothing else.
 *
 *   tls_relay --port P --to P2 [--certificate FILE --key FILE]
 *       one epoll thread on the loopback interface; whatever comes to P goes on
 *       to P2, and what comes back goes back.  With a certificate, TLS is spoken
 *       on P's side, by OpenSSL through memory, in reads of up to 256 KiB.
 *
 * The CPU time of one with TLS less that of one without is what the library and
 * its use cost a server for this traffic.  It prints "ready" and runs until it is
 * killed.
 *
 *   cc -O2 -Wall -DWITH_TLS -o tls_relay tls_relay.c -lssl -lcrypto      (libssl-dev)
 */
#ifdef WITH_TLS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORTION 262144  /* bytes that are read at once */
#define RECORD 16384    /* bytes of content that one TLS record holds */
#define OVERHEAD 16384  /* more than the records of a portion add to it */

struct end {
    int fd;
    bool gone;
    struct end *other;
    SSL *s; /* none: nothing is sealed on this side */
    BIO *in, *out;
    uint8_t *owed; /* what the socket has not taken yet; meanwhile the other side is not read */
    size_t at, size;
};
static int ep;
static uint8_t raw[PORTION], clear[PORTION + RECORD], sealed[PORTION + RECORD + OVERHEAD];

static void die(const char *what)
{
    perror(what);
    exit(1);
}
static void watch(struct end *e, int op)
{
    struct epoll_event v = {.events = (e->other->size ? 0 : EPOLLIN) | (e->size ? EPOLLOUT : 0), .data.ptr = e};
    if (epoll_ctl(ep, op, e->fd, &v)) die("epoll");
}
static void owe(struct end *e, size_t size)
{
    e->size = size;
    e->at = 0;
    watch(e, EPOLL_CTL_MOD);
    watch(e->other, EPOLL_CTL_MOD);
}
static void drop(struct end *e)
{
    e->gone = e->other->gone = true;
    close(e->fd);
    close(e->other->fd);
}
static void give(struct end *e, const uint8_t *data, size_t size)
{
    if (e->s) {
        if (SSL_write(e->s, data, size) != (int)size) die("SSL_write");
        size = BIO_read(e->out, sealed, sizeof sealed);
        data = sealed;
    }
    ssize_t n = send(e->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return; /* its loss is heard of by reading */
    if (n < 0) n = 0;
    if ((size_t)n == size) return;
    e->owed = realloc(e->owed, size - n);
    memcpy(e->owed, data + n, size - n);
    owe(e, size - n);
}
static void give_owed(struct end *e)
{
    ssize_t n = send(e->fd, e->owed + e->at, e->size - e->at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) e->at += n;
    if (e->at == e->size) owe(e, 0);
}
static void take(struct end *e)
{
    ssize_t n = recv(e->fd, raw, sizeof raw, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) { drop(e); return; }
    if (!e->s) { give(e->other, raw, n); return; }
    if (BIO_write(e->in, raw, n) != n) die("out of memory");
    size_t got = 0;
    int k;
    /* A portion and what was left of a record before: every whole record has room. */
    while ((k = SSL_read(e->s, clear + got, sizeof clear - got)) > 0) got += k;
    if (got) give(e->other, clear, got);
}
static bool shake_hands(struct end *e, SSL_CTX *tls)
{
    e->s = SSL_new(tls);
    SSL_set_fd(e->s, e->fd); /* which still blocks */
    if (SSL_accept(e->s) != 1) return false;
    e->in = BIO_new(BIO_s_mem());
    e->out = BIO_new(BIO_s_mem());
    BIO_set_mem_eof_return(e->in, -1);
    SSL_set_bio(e->s, e->in, e->out);
    return true;
}
static void join(int fd, struct sockaddr_in *to, SSL_CTX *tls)
{
    int one = 1;
    struct end *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    *a = (struct end){.fd = fd, .other = b};
    *b = (struct end){.fd = socket(AF_INET, SOCK_STREAM, 0), .other = a};
    if (connect(b->fd, (struct sockaddr *)to, sizeof *to)) die("connect");
    if (tls && !shake_hands(a, tls)) { drop(a); return; }
    setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(b->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(a, EPOLL_CTL_ADD);
    watch(b, EPOLL_CTL_ADD);
}
int main(int argc, char **argv)
{
    static const struct option names[] = {
        {"port", 1, 0, 'p'}, {"to", 1, 0, 't'}, {"certificate", 1, 0, 'c'}, {"key", 1, 0, 'k'}, {0}};
    const char *certificate = NULL, *key = NULL;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, to = here;
    SSL_CTX *tls = NULL;
    int one = 1;
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (o == 'p') here.sin_port = htons(atoi(optarg));
        else if (o == 't') to.sin_port = htons(atoi(optarg));
        else if (o == 'c') certificate = optarg;
        else if (o == 'k') key = optarg;
        else return 2;
    }
    if (certificate) {
        tls = SSL_CTX_new(TLS_server_method());
        if (SSL_CTX_use_certificate_chain_file(tls, certificate) != 1 || !key ||
            SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1) {
            fprintf(stderr, "tls_relay: no certificate and key in %s and %s\n", certificate, key ? key : "no file");
            return 1;
        }
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, 16)) die("bind");
    ep = epoll_create1(0);
    struct epoll_event v = {.events = EPOLLIN};
    epoll_ctl(ep, EPOLL_CTL_ADD, listener, &v);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[16];
        int n = epoll_wait(ep, events, 16, -1);
        for (int i = 0; i < n; i++) {
            struct end *e = events[i].data.ptr;
            if (!e) join(accept(listener, NULL, NULL), &to, tls);
            if (e && !e->gone && events[i].events & EPOLLOUT) give_owed(e);
            if (e && !e->gone && events[i].events & ~EPOLLOUT) take(e);
        }
    }
}
#else
#include <stdio.h>
int main(void)
{
    fputs("tls_relay: built without TLS\n", stderr);
    return 1;
}
#endif
