// Scenarios of ProtonJ2's imperative client against a node. Prints "NAME ok" or "NAME failed: WHY" for each one, then a
// blank line.
//
// Asked on standard input, a line each, separated by tabs: HOST PORT USER PASSWORD TRUST_STORE TRUST_STORE_PASSWORD SCENARIO... (no trust
// store: no TLS). The space has the queue j2-queue and the anycast address j2-anycast; every scenario leaves them empty.

import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.protonj2.client.Client;
import org.apache.qpid.protonj2.client.ClientOptions;
import org.apache.qpid.protonj2.client.Connection;
import org.apache.qpid.protonj2.client.ConnectionOptions;
import org.apache.qpid.protonj2.client.Delivery;
import org.apache.qpid.protonj2.client.DeliveryState;
import org.apache.qpid.protonj2.client.Message;
import org.apache.qpid.protonj2.client.Receiver;
import org.apache.qpid.protonj2.client.ReceiverOptions;
import org.apache.qpid.protonj2.client.Sender;
import org.apache.qpid.protonj2.client.Session;
import org.apache.qpid.protonj2.client.StreamDelivery;
import org.apache.qpid.protonj2.client.StreamReceiver;
import org.apache.qpid.protonj2.client.StreamSender;
import org.apache.qpid.protonj2.client.StreamSenderMessage;
import org.apache.qpid.protonj2.client.Tracker;
import org.apache.qpid.protonj2.client.exceptions.ClientException;

public final class ProtonJ2Client {
    private static final long PATIENCE_S = 20;
    private static final String QUEUE = "j2-queue";
    private static final String ANYCAST = "j2-anycast";
    private static final CountDownLatch INTERRUPTED = new CountDownLatch(1);

    private interface Scenario {
        void run(Connection connection) throws Exception;
    }

    private static final Map<String, Scenario> SCENARIOS = new TreeMap<>();

    static {
        SCENARIOS.put("exchange", ProtonJ2Client::exchange);
        SCENARIOS.put("outcomes", ProtonJ2Client::outcomes);
        SCENARIOS.put("credit", ProtonJ2Client::credit);
        SCENARIOS.put("drain", ProtonJ2Client::drain);
        SCENARIOS.put("direct-outcome", ProtonJ2Client::direct);
        SCENARIOS.put("request-reply", ProtonJ2Client::requestReply);
        SCENARIOS.put("transactions", ProtonJ2Client::transactions);
        SCENARIOS.put("streamed-message", ProtonJ2Client::streamed);
        SCENARIOS.put("unknown-address", ProtonJ2Client::unknown);
        SCENARIOS.put("reconnect", ProtonJ2Client::reconnect);
    }

    private ProtonJ2Client() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        Client client = Client.create(new ClientOptions().id("protonj2"));
        for (String line; (line = input.readLine()) != null;) {
            play(client, line.split("\t"));
            System.out.println();
            System.out.flush();
        }
        System.exit(0);
    }

    private static void play(Client client, String[] arguments) {
        ConnectionOptions options = new ConnectionOptions();
        if (!arguments[2].isEmpty()) {
            options.user(arguments[2]).password(arguments[3]);
        }
        if (!arguments[4].isEmpty()) {
            options.sslEnabled(true);
            options.sslOptions().trustStoreLocation(arguments[4]).trustStorePassword(arguments[5]);
        }
        if (List.of(arguments).contains("reconnect")) {
            options.reconnectEnabled(true);
            options.interruptedHandler((connection, event) -> INTERRUPTED.countDown());
            options.reconnectOptions().reconnectDelay(50).maxReconnectDelay(200);
        }
        for (String name : List.of(arguments).subList(6, arguments.length)) {
            try (Connection connection = client.connect(arguments[0], Integer.parseInt(arguments[1]), options)) {
                SCENARIOS.get(name).run(connection);
                System.out.println(name + " ok");
            } catch (Throwable problem) {
                System.out.println(name + " failed: " + String.valueOf(problem).replace('\n', ' '));
                problem.printStackTrace();
            }
            System.out.flush();
        }
    }

    private static void same(Object expected, Object found) {
        if (!String.valueOf(expected).equals(String.valueOf(found))) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    private static Delivery next(Receiver receiver) throws ClientException {
        Delivery delivery = receiver.receive(PATIENCE_S, TimeUnit.SECONDS);
        if (delivery == null) {
            throw new AssertionError("no message came");
        }
        return delivery;
    }

    private static DeliveryState settled(Tracker tracker) throws ClientException {
        return tracker.awaitSettlement(PATIENCE_S, TimeUnit.SECONDS).remoteState();
    }

    private static void exchange(Connection connection) throws ClientException {
        Sender sender = connection.openSender(QUEUE);
        for (int n = 0; n < 100; n++) {
            Message<String> message = Message.create("m" + n);
            message.durable(n % 2 == 0).subject("s" + n).property("n", n);
            same(DeliveryState.accepted(), settled(sender.send(message)));
        }
        Receiver receiver = connection.openReceiver(QUEUE);
        for (int n = 0; n < 100; n++) {
            Delivery delivery = next(receiver);
            same("m" + n, delivery.message().body());
            same("s" + n, delivery.message().subject());
            same(n, delivery.message().property("n"));
            same(n % 2 == 0, delivery.message().durable());
        }
        same(null, receiver.tryReceive());
    }

    private static void outcomes(Connection connection) throws ClientException {
        Sender sender = connection.openSender(QUEUE);
        sender.send(Message.create("again"));
        Receiver receiver = connection.openReceiver(QUEUE, new ReceiverOptions().autoAccept(false).creditWindow(1));
        next(receiver).release();
        Delivery second = next(receiver);
        same(0, second.message().deliveryCount());
        second.modified(true, false);
        Delivery third = next(receiver);
        same(1, third.message().deliveryCount());
        same("again", third.message().body());
        third.reject("test:enough", "seen often enough");
        sender.send(Message.create("last"));
        Delivery last = next(receiver);
        same("last", last.message().body());
        last.accept();
    }

    private static void credit(Connection connection) throws ClientException {
        Sender sender = connection.openSender(QUEUE);
        for (int n = 0; n < 5; n++) {
            sender.send(Message.create("m" + n));
        }
        Receiver receiver = connection.openReceiver(QUEUE, new ReceiverOptions().creditWindow(0));
        same(null, receiver.receive(200, TimeUnit.MILLISECONDS));
        receiver.addCredit(2);
        same("m0", next(receiver).message().body());
        same("m1", next(receiver).message().body());
        same(null, receiver.receive(200, TimeUnit.MILLISECONDS));
        receiver.addCredit(3);
        for (int n = 2; n < 5; n++) {
            same("m" + n, next(receiver).message().body());
        }
    }

    private static void drain(Connection connection) throws Exception {
        Sender sender = connection.openSender(QUEUE);
        sender.send(Message.create("only"));
        Receiver receiver = connection.openReceiver(QUEUE, new ReceiverOptions().creditWindow(0));
        receiver.addCredit(10);
        same("only", next(receiver).message().body());
        receiver.drain().get(PATIENCE_S, TimeUnit.SECONDS);
        same(null, receiver.tryReceive());
    }

    private static void direct(Connection connection) throws Exception {
        Receiver receiver = connection.openReceiver(ANYCAST, new ReceiverOptions().autoAccept(false));
        receiver.openFuture().get(PATIENCE_S, TimeUnit.SECONDS);
        Sender sender = connection.openSender(ANYCAST);
        Tracker first = sender.send(Message.create("no"));
        next(receiver).reject("test:no", "not this one");
        same(DeliveryState.Type.REJECTED, settled(first).getType());
        Tracker second = sender.send(Message.create("yes"));
        next(receiver).accept();
        same(DeliveryState.Type.ACCEPTED, settled(second).getType());
    }

    private static void requestReply(Connection connection) throws Exception {
        Receiver service = connection.openReceiver(ANYCAST);
        Receiver replies = connection.openDynamicReceiver();
        String replyTo = replies.address();
        Sender sender = connection.openSender(ANYCAST);
        Sender anonymous = connection.openAnonymousSender();
        for (int n = 0; n < 50; n++) {
            Message<String> request = Message.create("question " + n);
            request.replyTo(replyTo).correlationId("c" + n);
            sender.send(request);
            Message<String> asked = next(service).message();
            Message<String> answer = Message.create(asked.body().toUpperCase());
            answer.to(asked.replyTo()).correlationId(asked.correlationId());
            Tracker tracker = anonymous.send(answer);
            Message<String> heard = next(replies).message();
            same("QUESTION " + n, heard.body());
            same("c" + n, heard.correlationId());
            same(DeliveryState.accepted(), settled(tracker));
        }
    }

    private static void transactions(Connection connection) throws ClientException {
        Session session = connection.openSession();
        Sender sender = session.openSender(QUEUE);
        session.beginTransaction();
        sender.send(Message.create("rolled back"));
        session.rollbackTransaction();
        session.beginTransaction();
        sender.send(Message.create("kept"));
        session.commitTransaction();
        Receiver receiver = session.openReceiver(QUEUE, new ReceiverOptions().autoAccept(false));
        session.beginTransaction();
        Delivery delivery = next(receiver);
        same("kept", delivery.message().body());
        delivery.accept();
        session.commitTransaction();
        same(null, receiver.receive(200, TimeUnit.MILLISECONDS));
    }

    private static void streamed(Connection connection) throws Exception {
        int size = 40 << 20;
        ExecutorService executor = Executors.newSingleThreadExecutor();
        try (StreamReceiver receiver = connection.openStreamReceiver(ANYCAST)) {
            receiver.openFuture().get(PATIENCE_S, TimeUnit.SECONDS);
            Future<Long> read = executor.submit(() -> {
                StreamDelivery delivery = receiver.receive(PATIENCE_S, TimeUnit.SECONDS);
                long count = 0;
                byte[] buffer = new byte[1 << 16];
                try (InputStream in = delivery.message().body()) {
                    for (int n = in.read(buffer); n >= 0; n = in.read(buffer)) {
                        count += n;
                    }
                }
                delivery.accept();
                return count;
            });
            try (StreamSender sender = connection.openStreamSender(ANYCAST)) {
                StreamSenderMessage message = sender.beginMessage();
                byte[] piece = new byte[1 << 20];
                Arrays.fill(piece, (byte) 42);
                try (OutputStream out = message.body()) {
                    for (int sent = 0; sent < size; sent += piece.length) {
                        out.write(piece);
                    }
                }
                same((long) size, read.get(3 * PATIENCE_S, TimeUnit.SECONDS));
                message.tracker().awaitSettlement(PATIENCE_S, TimeUnit.SECONDS);
            }
        } finally {
            executor.shutdownNow();
        }
    }

    private static void unknown(Connection connection) throws Exception {
        Receiver receiver = connection.openReceiver("j2-nowhere");
        try {
            receiver.openFuture().get(PATIENCE_S, TimeUnit.SECONDS);
            receiver.receive(PATIENCE_S, TimeUnit.SECONDS);
            throw new AssertionError("a receiver of an unknown address was made");
        } catch (java.util.concurrent.ExecutionException | ClientException expected) {
            same(true, String.valueOf(expected).contains("j2-nowhere"));
        }
    }

    private static void reconnect(Connection connection) throws Exception {
        Sender sender = connection.openSender(QUEUE);
        for (int n = 0; n < 100; n++) {
            Message<String> message = Message.create("m" + n);
            message.durable(true);
            boolean isSent = false;
            while (!isSent) {
                try {
                    isSent = settled(sender.send(message)).getType() == DeliveryState.Type.ACCEPTED;
                } catch (ClientException lost) {
                    // Its fate is unknown, so it goes again.
                    Thread.sleep(10);
                }
            }
            if (n == 10) {
                System.out.println("reconnect begun");
                System.out.flush();
                // ProtonJ2 (1.1.0, too) that writes in the moment in which its connection is lost begins to reconnect
                // twice at once, and then says nothing on any connection that it makes.
                same(true, INTERRUPTED.await(PATIENCE_S, TimeUnit.SECONDS));
            }
            Thread.sleep(10);
        }
        Receiver receiver = connection.openReceiver(QUEUE);
        TreeSet<String> seen = new TreeSet<>();
        while (seen.size() < 100) {
            seen.add((String) next(receiver).message().body());
        }
    }
}
