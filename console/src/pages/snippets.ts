// Programs that send and receive one message, in the languages of our users, with what is needed to connect filled in.

export interface Place {
  host: string;
  port: number;
  tls: boolean;
  /** `<space>.<namespace>`: names the space where a host serves several. */
  space: string;
  address: string;
  /** With the space as realm; null where everybody is let in. */
  user: string | null;
}

export interface Snippet {
  language: string;
  /** What to install before. */
  install: string;
  text: (place: Place) => string;
  /** The name of the file it goes into. */
  file: string;
}

const quoted = JSON.stringify;
const scheme = (place: Place) => (place.tls ? "amqps" : "amqp");
const host = (place: Place) => (place.host.includes(":") ? `[${place.host}]` : place.host);
const password = "PASSWORD";
const userOf = (place: Place) => place.user ?? `anonymous@${place.space}`;
const passwordOf = (place: Place) => (place.user === null ? "none" : password);
// Proton expects a certificate for the virtual host, and names it after the login alone: there the user's realm says it.
const withRealm = (place: Place) => place.user !== null || place.tls;
const isAddress = (place: Place) => place.host.includes(":") || /^[0-9.]+$/.test(place.host);

/** One language after the other; a protocol adds its own. */
export const SNIPPETS: Snippet[] = [
  {
    language: "Python",
    install: "pip install python-qpid-proton",
    file: "hello.py",
    text: (place) => `from proton import Message${place.tls ? ", SSLDomain" : ""}
from proton.utils import BlockingConnection
${
  place.tls
    ? `
tls = SSLDomain(SSLDomain.MODE_CLIENT)
tls.set_trusted_ca_db("ca.crt")
tls.set_peer_authentication(SSLDomain.${isAddress(place) ? "VERIFY_PEER)  # Proton compares no IP addresses" : "VERIFY_PEER_NAME)"}
`
    : ""
}
connection = BlockingConnection(
    "${scheme(place)}://${host(place)}:${place.port}",${
      withRealm(place) ? `\n    user=${quoted(userOf(place))},\n    password="${passwordOf(place)}",${place.user === null ? '\n    allowed_mechs="PLAIN",' : ""}` : `\n    virtual_host=${quoted(place.space)},`
    }${place.tls ? "\n    ssl_domain=tls," : ""}
)
sender = connection.create_sender(${quoted(place.address)})
receiver = connection.create_receiver(${quoted(place.address)})
sender.send(Message(body="hello", durable=True))
print(receiver.receive(timeout=5).body)
receiver.accept()
connection.close()
`,
  },
  {
    language: "Java",
    install: "org.apache.qpid:qpid-jms-client (Maven)",
    file: "Hello.java",
    text: (place) => {
      const options = [`amqp.vhost=${encodeURIComponent(place.space)}`];
      if (place.tls) options.push("transport.trustStoreLocation=ca.p12", "transport.trustStorePassword=changeit");
      const login = place.user === null ? "" : `${quoted(place.user)}, "${password}"`;
      return `import jakarta.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Hello {
  public static void main(String[] arguments) throws JMSException {${
    place.tls ? "\n    // keytool -importcert -noprompt -alias enmasse -file ca.crt -keystore ca.p12 -storepass changeit" : ""
  }
    var factory = new JmsConnectionFactory(
        "${scheme(place)}://${host(place)}:${place.port}?${options.join("&")}");
    try (Connection connection = factory.createConnection(${login})) {
      connection.start();
      Session session = connection.createSession();
      Queue address = session.createQueue(${quoted(place.address)});
      MessageConsumer receiver = session.createConsumer(address);
      session.createProducer(address).send(session.createTextMessage("hello"));
      System.out.println(((TextMessage) receiver.receive(5000)).getText());
    }
  }
}
`;
    },
  },
  {
    language: "JavaScript",
    install: "npm install rhea",
    file: "hello.mjs",
    text: (place) => `import rhea from "rhea";${place.tls ? '\nimport { readFileSync } from "node:fs";' : ""}

const container = rhea.create_container();
container.on("receiver_open", ({ connection }) => connection.open_sender(${quoted(place.address)}));
container.once("sendable", ({ sender }) => sender.send({ body: "hello", durable: true }));
container.on("message", ({ message, connection }) => {
  console.log(message.body);
  connection.close();
});
container
  .connect({
    host: ${quoted(place.host)},
    port: ${place.port},
    hostname: ${quoted(place.space)},${place.tls ? '\n    transport: "tls",\n    servername: ' + quoted(place.host) + ',\n    ca: readFileSync("ca.crt"),' : ""}${
      place.user === null ? '\n    username: "anonymous",' : `\n    username: ${quoted(place.user)},\n    password: "${password}",`
    }
    reconnect: false,
  })
  .open_receiver(${quoted(place.address)});
`,
  },
  {
    language: "Go",
    install: "go get github.com/Azure/go-amqp",
    file: "main.go",
    text: (place) => `package main

import (
	"context"${place.tls ? '\n\t"crypto/tls"\n\t"crypto/x509"' : ""}
	"fmt"
	"log"${place.tls ? '\n\t"os"' : ""}

	"github.com/Azure/go-amqp"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()${
    place.tls
      ? `
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile("ca.crt")))`
      : ""
  }
	conn := must(amqp.Dial(ctx, "${scheme(place)}://${host(place)}:${place.port}", &amqp.ConnOptions{
		HostName: ${quoted(place.space)},${place.tls ? `\n\t\tTLSConfig: &tls.Config{RootCAs: roots, ServerName: ${quoted(place.host)}},` : ""}
		SASLType: ${place.user === null ? "amqp.SASLTypeAnonymous()" : `amqp.SASLTypePlain(${quoted(place.user)}, "${password}")`},
	}))
	defer conn.Close()
	session := must(conn.NewSession(ctx, nil))
	receiver := must(session.NewReceiver(ctx, ${quoted(place.address)}, nil))
	sender := must(session.NewSender(ctx, ${quoted(place.address)}, nil))
	message := amqp.NewMessage([]byte("hello"))
	message.Header = &amqp.MessageHeader{Durable: true}
	if err := sender.Send(ctx, message, nil); err != nil {
		log.Fatal(err)
	}
	got := must(receiver.Receive(ctx, nil))
	fmt.Println(string(got.GetData()))
	if err := receiver.AcceptMessage(ctx, got); err != nil {
		log.Fatal(err)
	}
}
`,
  },
  {
    language: "C++",
    install: "libqpid-proton-cpp-dev (apt); link with -lqpid-proton-cpp",
    file: "hello.cpp",
    text: (place) => `#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver.hpp>
#include <proton/sender.hpp>${place.tls ? "\n#include <proton/ssl.hpp>" : ""}
#include <iostream>

struct Hello : proton::messaging_handler {
  void on_container_start(proton::container& container) override {
    proton::connection_options options;
    ${
      withRealm(place) ? `options.user(${quoted(userOf(place))}).password("${passwordOf(place)}");${place.user === null ? '\n    options.sasl_allowed_mechs("PLAIN");' : ""}` : `options.virtual_host(${quoted(place.space)});`
    }${place.tls ? `\n    options.ssl_client_options(proton::ssl_client_options("ca.crt"${isAddress(place) ? ", proton::ssl::VERIFY_PEER));  // Proton compares no IP addresses" : "));"}` : ""}
    proton::connection connection = container.connect("${scheme(place)}://${host(place)}:${place.port}", options);
    connection.open_receiver(${quoted(place.address)});
    connection.open_sender(${quoted(place.address)});
  }
  void on_sendable(proton::sender& sender) override {
    sender.send(proton::message("hello"));
    sender.close();
  }
  void on_message(proton::delivery& delivery, proton::message& message) override {
    std::cout << proton::get<std::string>(message.body()) << std::endl;
    delivery.connection().close();
  }
};

int main() {
  Hello hello;
  proton::container(hello).run();
}
`,
  },
  {
    language: "MQTT",
    install: "apt-get install mosquitto-clients",
    file: "hello.sh",
    text: (place) => {
      const login = `-u ${shellQuoted(userOf(place))} -P ${shellQuoted(passwordOf(place))}`;
      const common = `-h ${place.host} -p ${place.port}${place.tls ? " --cafile ca.crt" : ""} ${login} -V 5`;
      return `mosquitto_sub ${common} -t ${shellQuoted(place.address)} -q 1 -C 1 -W 5 &
sleep 1
mosquitto_pub ${common} -t ${shellQuoted(place.address)} -q 1 -m hello
wait
`;
    },
  },
  {
    language: "HTTP",
    install: "apt-get install curl",
    file: "hello.sh",
    text: (place) => {
      const path = `/v1/spaces/${place.space}/addresses/${encodeURIComponent(place.address)}`;
      const url = shellQuoted(`http${place.tls ? "s" : ""}://${host(place)}:${place.port}${path}`);
      const common = `curl --silent --show-error${place.tls ? " --cacert ca.crt" : ""}${place.user === null ? "" : ` -u ${shellQuoted(`${place.user}:${password}`)}`}`;
      return `ADDRESS=${url}
# With auto=true messages are accepted as they come; without it each has a lease, to be settled.
${common} --data '' "$ADDRESS/receive?wait=5&auto=true" &
sleep 1
${common} --data hello -H 'Content-Type: text/plain' "$ADDRESS/messages"
wait
`;
    },
  },
];

function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", `'"'"'`)}'`;
}
