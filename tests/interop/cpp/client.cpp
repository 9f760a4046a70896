// Scenarios of Proton's C++ library against a node. Prints "SCENARIO ok", or says why not and exits with 1.
//
// Arguments: SCENARIO URL ADDRESS USER PASSWORD CA_FILE (no user: ANONYMOUS; no file: no TLS)

#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/error_condition.hpp>
#include <proton/message.hpp>
#include <proton/message_id.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver.hpp>
#include <proton/receiver_options.hpp>
#include <proton/reconnect_options.hpp>
#include <proton/sender.hpp>
#include <proton/source.hpp>
#include <proton/source_options.hpp>
#include <proton/ssl.hpp>
#include <proton/tracker.hpp>
#include <proton/transport.hpp>
#include <proton/work_queue.hpp>

#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>

namespace {

std::string scenario, url, address, user, password, authority;

void require(bool is_so, const std::string &what) {
    if (!is_so) {
        throw std::runtime_error(what);
    }
}

proton::connection_options options() {
    proton::connection_options found;
    if (user.empty()) {
        found.sasl_allowed_mechs("ANONYMOUS");
    } else {
        found.user(user).password(password);
    }
    if (!authority.empty()) {
        found.ssl_client_options(proton::ssl_client_options(authority, proton::ssl::VERIFY_PEER_NAME));
    }
    return found;
}

class client : public proton::messaging_handler {
  public:
    void on_transport_error(proton::transport &transport) override {
        throw std::runtime_error("transport: " + transport.error().what());
    }
    void on_connection_error(proton::connection &connection) override {
        throw std::runtime_error("connection: " + connection.error().what());
    }
    void on_sender_error(proton::sender &sender) override {
        throw std::runtime_error("sender: " + sender.error().what());
    }
    void on_receiver_error(proton::receiver &receiver) override {
        throw std::runtime_error("receiver: " + receiver.error().what());
    }
};

// Sends numbered messages and receives them in order.
class exchange : public client {
    static const int COUNT = 200;
    int sent_ = 0, accepted_ = 0, received_ = 0;

  public:
    void on_container_start(proton::container &container) override {
        proton::connection connection = container.connect(url, options());
        connection.open_receiver(address);
        connection.open_sender(address);
    }
    void on_sendable(proton::sender &sender) override {
        while (sender.credit() && sent_ < COUNT) {
            proton::message message("message " + std::to_string(sent_));
            message.id(proton::message_id(static_cast<uint64_t>(sent_)));
            message.durable(true);
            message.properties().put("n", sent_);
            sender.send(message);
            sent_++;
        }
    }
    void on_tracker_accept(proton::tracker &tracker) override {
        accepted_++;
        end(tracker.connection());
    }
    void on_message(proton::delivery &delivery, proton::message &message) override {
        require(proton::get<std::string>(message.body()) == "message " + std::to_string(received_), "order");
        require(proton::get<int>(message.properties().get("n")) == received_, "properties");
        received_++;
        end(delivery.connection());
    }

  private:
    void end(proton::connection connection) {
        if (accepted_ == COUNT && received_ == COUNT) {
            connection.close();
        }
    }
};

// Gives a message back, has it fail, and takes it; the node counts.
class outcomes : public client {
    int seen_ = 0;
    bool is_sent_ = false;

  public:
    void on_container_start(proton::container &container) override {
        proton::connection connection = container.connect(url, options());
        connection.open_receiver(address, proton::receiver_options().auto_accept(false).credit_window(1));
        connection.open_sender(address);
    }
    void on_sendable(proton::sender &sender) override {
        if (!is_sent_) {
            is_sent_ = true;
            sender.send(proton::message("again"));
        }
    }
    void on_message(proton::delivery &delivery, proton::message &message) override {
        seen_++;
        if (seen_ == 1) {
            delivery.release();
        } else if (seen_ == 2) {
            require(message.delivery_count() == 0, "a release is no attempt");
            delivery.modify();
        } else {
            delivery.accept();
            delivery.connection().close();
        }
    }
};

// Asks itself questions through a reply address that the node makes.
class request_reply : public client {
    static const int COUNT = 100;
    proton::sender requests_, replies_;
    proton::receiver answers_;
    int asked_ = 0, answered_ = 0;

  public:
    void on_container_start(proton::container &container) override {
        proton::connection connection = container.connect(url, options());
        proton::source_options dynamic;
        dynamic.dynamic(true);
        answers_ = connection.open_receiver("", proton::receiver_options().source(dynamic));
        connection.open_receiver(address);
        requests_ = connection.open_sender(address);
        replies_ = connection.open_sender("");
    }
    void on_receiver_open(proton::receiver &receiver) override {
        if (receiver == answers_) {
            ask();
        }
    }
    void on_message(proton::delivery &delivery, proton::message &message) override {
        if (delivery.receiver() == answers_) {
            require(message.correlation_id() == proton::message_id(static_cast<uint64_t>(answered_)), "correlation");
            answered_++;
            if (answered_ == COUNT) {
                delivery.connection().close();
            } else {
                ask();
            }
        } else {
            proton::message answer("answer");
            answer.to(message.reply_to());
            answer.correlation_id(message.correlation_id());
            replies_.send(answer);
        }
    }

  private:
    void ask() {
        proton::message question("question");
        question.reply_to(answers_.source().address());
        question.correlation_id(proton::message_id(static_cast<uint64_t>(asked_++)));
        requests_.send(question);
    }
};

// Goes on sending while its node goes and comes, until everything was accepted.
class reconnect : public client {
    static const int COUNT = 300;
    int next_ = 0;
    bool is_told_ = false;

  public:
    void on_container_start(proton::container &container) override {
        proton::reconnect_options patient;
        patient.delay(proton::duration(50)).max_delay(proton::duration(200));
        proton::connection connection = container.connect(url, options().reconnect(patient));
        connection.open_sender(address);
    }
    void on_transport_error(proton::transport &) override {}
    void on_sendable(proton::sender &sender) override { send(sender); }
    void on_tracker_accept(proton::tracker &tracker) override {
        if (++next_ == 20 && !is_told_) {
            is_told_ = true;
            std::cout << "reconnect begun" << std::endl;
        }
        if (next_ == COUNT) {
            tracker.connection().close();
        } else {
            proton::sender sender = tracker.sender();
            sender.container().schedule(proton::duration(5), proton::make_work(&reconnect::send, this, sender));
        }
    }

  private:
    void send(proton::sender sender) {
        if (sender.active() && sender.credit() > 0) {
            proton::message message("m" + std::to_string(next_));
            message.durable(true);
            sender.send(message);
        }
    }
};

}  // namespace

int main(int count, char **arguments) {
    std::string *places[] = {&scenario, &url, &address, &user, &password, &authority};
    for (int n = 1; n < count && n <= 6; n++) {
        *places[n - 1] = arguments[n];
    }
    try {
        if (scenario == "exchange") {
            exchange played;
            proton::container(played).run();
        } else if (scenario == "outcomes") {
            outcomes played;
            proton::container(played).run();
        } else if (scenario == "request-reply") {
            request_reply played;
            proton::container(played).run();
        } else if (scenario == "reconnect") {
            reconnect played;
            proton::container(played).run();
        } else {
            throw std::runtime_error("no such scenario");
        }
    } catch (const std::exception &problem) {
        std::cout << scenario << " failed: " << problem.what() << std::endl;
        return EXIT_FAILURE;
    }
    std::cout << scenario << " ok" << std::endl;
    return EXIT_SUCCESS;
}
