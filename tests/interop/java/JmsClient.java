// Scenarios of Qpid JMS against a node. Prints "NAME ok" or "NAME failed: WHY" for each one asked for, then a blank line.
//
// Asked on standard input, a line each, separated by tabs: URL USER PASSWORD SCENARIO... The space has the queues jms-queue, jms-other and jms-short and the topic
// jms-topic; every scenario leaves them empty. SCENARIO=QUEUE takes another queue for jms-queue.

import jakarta.jms.BytesMessage;
import jakarta.jms.CompletionListener;
import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;

public final class JmsClient {
    private static final long PATIENCE_MS = 20_000;
    private static final long SILENCE_MS = 300;

    private interface Scenario {
        void run(Connection connection) throws Exception;
    }

    private final ConnectionFactory factory;
    private final Map<String, Scenario> scenarios = new TreeMap<>();
    private String queueName;

    private JmsClient(String url, String user, String password) {
        factory = user.isEmpty() ? new JmsConnectionFactory(url) : new JmsConnectionFactory(user, password, url);
        scenarios.put("messages-of-every-kind", this::messages);
        scenarios.put("transactions", this::transactions);
        scenarios.put("recover", this::recover);
        scenarios.put("selector", this::selector);
        scenarios.put("browser", this::browser);
        scenarios.put("topic", this::topic);
        scenarios.put("durable-subscription", this::durable);
        scenarios.put("shared-subscription", this::shared);
        scenarios.put("request-reply", this::requestReply);
        scenarios.put("anonymous-producer", this::anonymous);
        scenarios.put("completions", this::completions);
        scenarios.put("expiry", this::expiry);
        scenarios.put("delay", this::delay);
        scenarios.put("priority", this::priority);
        scenarios.put("unknown-queue", this::unknown);
        scenarios.put("prefetch", this::prefetch);
        scenarios.put("large-message", this::large);
        scenarios.put("many", this::many);
        scenarios.put("reconnect", this::reconnect);
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null;) {
            String[] asked = line.split("\t");
            JmsClient client = new JmsClient(asked[0], asked[1], asked[2]);
            for (String name : List.of(asked).subList(3, asked.length)) {
                client.play(name);
            }
            System.out.println();
            System.out.flush();
        }
        System.exit(0);
    }

    private void play(String asked) {
        String[] parts = asked.split("=", 2);
        String name = parts[0];
        queueName = parts.length > 1 ? parts[1] : "jms-queue";
        try (Connection connection = factory.createConnection()) {
            if (name.endsWith("subscription")) {
                connection.setClientID("jms-" + name);
            }
            connection.start();
            scenarios.get(name).run(connection);
            System.out.println(name + " ok");
        } catch (Throwable problem) {
            System.out.println(name + " failed: " + String.valueOf(problem).replace('\n', ' '));
            problem.printStackTrace();
        }
        System.out.flush();
    }

    private static void same(Object expected, Object found) {
        if (!String.valueOf(expected).equals(String.valueOf(found))) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    private static TextMessage next(MessageConsumer consumer) throws JMSException {
        Message message = consumer.receive(PATIENCE_MS);
        if (message == null) {
            throw new AssertionError("no message came");
        }
        return (TextMessage) message;
    }

    private static void silence(MessageConsumer consumer) throws JMSException {
        same(null, consumer.receive(SILENCE_MS));
    }

    private static Session plain(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    private void messages(Connection connection) throws JMSException {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        TextMessage text = session.createTextMessage("text");
        text.setStringProperty("colour", "red");
        text.setIntProperty("count", 7);
        text.setBooleanProperty("open", true);
        text.setDoubleProperty("weight", 1.5);
        text.setJMSCorrelationID("correlation");
        text.setJMSType("kind");
        text.setJMSReplyTo(session.createQueue("jms-other"));
        producer.send(text);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {1, 2, 3});
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        producer.send(bytes);
        MapMessage map = session.createMapMessage();
        map.setString("name", "value");
        map.setLong("number", 1L << 40);
        producer.send(map);
        producer.send(session.createObjectMessage(new java.util.ArrayList<>(List.of("a", "b"))));

        MessageConsumer consumer = session.createConsumer(queue);
        TextMessage first = next(consumer);
        same("text", first.getText());
        same("red", first.getStringProperty("colour"));
        same(7, first.getIntProperty("count"));
        same(true, first.getBooleanProperty("open"));
        same(1.5, first.getDoubleProperty("weight"));
        same("correlation", first.getJMSCorrelationID());
        same("kind", first.getJMSType());
        same("jms-other", ((Queue) first.getJMSReplyTo()).getQueueName());
        same(queueName, ((Queue) first.getJMSDestination()).getQueueName());
        same(DeliveryMode.PERSISTENT, first.getJMSDeliveryMode());
        same(false, first.getJMSRedelivered());
        same(text.getJMSMessageID(), first.getJMSMessageID());
        BytesMessage second = (BytesMessage) consumer.receive(PATIENCE_MS);
        same(3, second.getBodyLength());
        same(DeliveryMode.NON_PERSISTENT, second.getJMSDeliveryMode());
        MapMessage third = (MapMessage) consumer.receive(PATIENCE_MS);
        same(1L << 40, third.getLong("number"));
        consumer.receive(PATIENCE_MS);
        silence(consumer);
    }

    private void transactions(Connection connection) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        producer.send(session.createTextMessage("rolled back"));
        session.rollback();
        producer.send(session.createTextMessage("a"));
        producer.send(session.createTextMessage("b"));
        session.commit();
        same("a", next(consumer).getText());
        session.rollback();
        TextMessage again = next(consumer);
        same("a", again.getText());
        same(true, again.getJMSRedelivered());
        same(2, again.getIntProperty("JMSXDeliveryCount"));
        same("b", next(consumer).getText());
        session.commit();
        silence(consumer);
        session.commit();
    }

    private void recover(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int n = 0; n < 3; n++) {
            producer.send(session.createTextMessage("m" + n));
        }
        next(consumer);
        next(consumer);
        session.recover();
        for (int n = 0; n < 3; n++) {
            TextMessage message = next(consumer);
            same("m" + n, message.getText());
            same(n < 2, message.getJMSRedelivered());
            message.acknowledge();
        }
        silence(consumer);
    }

    private void selector(Connection connection) throws JMSException {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < 10; n++) {
            TextMessage message = session.createTextMessage("m" + n);
            message.setIntProperty("n", n);
            message.setJMSCorrelationID(n % 2 == 0 ? "even" : "odd");
            producer.send(message);
        }
        try (MessageConsumer some = session.createConsumer(queue, "n > 6 AND JMSCorrelationID = 'odd'")) {
            same("m7", next(some).getText());
            same("m9", next(some).getText());
            silence(some);
        }
        try (MessageConsumer rest = session.createConsumer(queue)) {
            for (int n : new int[] {0, 1, 2, 3, 4, 5, 6, 8}) {
                same("m" + n, next(rest).getText());
            }
            silence(rest);
        }
    }

    private void browser(Connection connection) throws JMSException {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < 5; n++) {
            producer.send(session.createTextMessage("m" + n));
        }
        try (QueueBrowser browser = session.createBrowser(queue)) {
            same(5, Collections.list(browser.getEnumeration()).size());
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int n = 0; n < 5; n++) {
            same("m" + n, next(consumer).getText());
        }
        silence(consumer);
    }

    private void topic(Connection connection) throws JMSException {
        Session session = plain(connection);
        Topic topic = session.createTopic("jms-topic");
        MessageConsumer one = session.createConsumer(topic);
        MessageConsumer two = session.createConsumer(topic);
        session.createProducer(topic).send(session.createTextMessage("to all"));
        same("to all", next(one).getText());
        same("to all", next(two).getText());
    }

    private void durable(Connection connection) throws JMSException {
        Session session = plain(connection);
        Topic topic = session.createTopic("jms-topic");
        session.createDurableSubscriber(topic, "lasting").close();
        MessageProducer producer = session.createProducer(topic);
        producer.send(session.createTextMessage("while away"));
        MessageConsumer consumer = session.createDurableSubscriber(topic, "lasting");
        same("while away", next(consumer).getText());
        consumer.close();
        session.unsubscribe("lasting");
        try {
            session.unsubscribe("lasting");
            throw new AssertionError("a subscription that is gone was unsubscribed");
        } catch (InvalidDestinationException expected) {
            producer.close();
        }
    }

    private void shared(Connection connection) throws JMSException {
        Session session = plain(connection);
        Topic topic = session.createTopic("jms-topic");
        MessageConsumer one = session.createSharedDurableConsumer(topic, "together");
        MessageConsumer two = session.createSharedDurableConsumer(topic, "together");
        MessageProducer producer = session.createProducer(topic);
        for (int n = 0; n < 10; n++) {
            producer.send(session.createTextMessage("m" + n));
        }
        TreeSet<String> seen = new TreeSet<>();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (seen.size() < 10 && System.currentTimeMillis() < end) {
            for (MessageConsumer consumer : List.of(one, two)) {
                Message message = consumer.receive(20);
                if (message != null && !seen.add(((TextMessage) message).getText())) {
                    throw new AssertionError("a message came twice");
                }
            }
        }
        same(10, seen.size());
        one.close();
        two.close();
        session.unsubscribe("together");
    }

    private void requestReply(Connection connection) throws JMSException {
        Session serving = plain(connection);
        MessageConsumer service = serving.createConsumer(serving.createQueue("jms-other"));
        MessageProducer answers = serving.createProducer(null);
        service.setMessageListener(request -> {
            try {
                TextMessage answer = serving.createTextMessage(((TextMessage) request).getText().toUpperCase());
                answer.setJMSCorrelationID(request.getJMSMessageID());
                answers.send(request.getJMSReplyTo(), answer);
            } catch (JMSException problem) {
                throw new IllegalStateException(problem);
            }
        });
        Session asking = plain(connection);
        TemporaryQueue replies = asking.createTemporaryQueue();
        MessageConsumer consumer = asking.createConsumer(replies);
        MessageProducer producer = asking.createProducer(asking.createQueue("jms-other"));
        for (int n = 0; n < 50; n++) {
            TextMessage request = asking.createTextMessage("question " + n);
            request.setJMSReplyTo(replies);
            producer.send(request);
            TextMessage answer = next(consumer);
            same("QUESTION " + n, answer.getText());
            same(request.getJMSMessageID(), answer.getJMSCorrelationID());
        }
        consumer.close();
        replies.delete();
    }

    private void anonymous(Connection connection) throws JMSException {
        Session session = plain(connection);
        MessageProducer producer = session.createProducer(null);
        producer.send(session.createQueue(queueName), session.createTextMessage("one"));
        producer.send(session.createQueue("jms-other"), session.createTextMessage("two"));
        same("one", next(session.createConsumer(session.createQueue(queueName))).getText());
        same("two", next(session.createConsumer(session.createQueue("jms-other"))).getText());
        try {
            producer.send(session.createQueue("jms-nowhere"), session.createTextMessage("lost"));
            throw new AssertionError("a message to an unknown address was accepted");
        } catch (JMSException expected) {
            producer.close();
        }
    }

    private void completions(Connection connection) throws Exception {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        CountDownLatch done = new CountDownLatch(100);
        AtomicInteger failed = new AtomicInteger();
        CompletionListener listener = new CompletionListener() {
            @Override
            public void onCompletion(Message message) {
                done.countDown();
            }

            @Override
            public void onException(Message message, Exception problem) {
                failed.incrementAndGet();
                done.countDown();
            }
        };
        for (int n = 0; n < 100; n++) {
            producer.send(session.createTextMessage("m" + n), listener);
        }
        same(true, done.await(PATIENCE_MS, TimeUnit.MILLISECONDS));
        same(0, failed.get());
        MessageConsumer consumer = session.createConsumer(queue);
        for (int n = 0; n < 100; n++) {
            same("m" + n, next(consumer).getText());
        }
    }

    private void expiry(Connection connection) throws Exception {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        producer.setTimeToLive(1);
        producer.send(session.createTextMessage("soon gone"));
        producer.setTimeToLive(0);
        producer.send(session.createTextMessage("stays"));
        Thread.sleep(50);
        MessageConsumer consumer = session.createConsumer(queue);
        same("stays", next(consumer).getText());
        silence(consumer);
    }

    private void delay(Connection connection) throws JMSException {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(1500);
        producer.send(session.createTextMessage("later"));
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("now"));
        MessageConsumer consumer = session.createConsumer(queue);
        same("now", next(consumer).getText());
        same("later", next(consumer).getText());
    }

    private void priority(Connection connection) throws JMSException {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        for (int priority : new int[] {1, 9, 4}) {
            producer.setPriority(priority);
            producer.send(session.createTextMessage("p" + priority));
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int priority : new int[] {9, 4, 1}) {
            TextMessage message = next(consumer);
            same("p" + priority, message.getText());
            same(priority, message.getJMSPriority());
        }
    }

    private void unknown(Connection connection) throws JMSException {
        Session session = plain(connection);
        try {
            session.createConsumer(session.createQueue("jms-nowhere"));
            throw new AssertionError("a consumer of an unknown queue was made");
        } catch (InvalidDestinationException expected) {
            // The session goes on.
        }
        try {
            session.createConsumer(session.createQueue("jms-topic"));
            throw new AssertionError("a consumer of a topic as a queue was made");
        } catch (JMSException expected) {
            same(true, expected.getMessage().contains("createTopic"));
        }
        session.close();
    }

    private void prefetch(Connection connection) throws JMSException {
        Session session = plain(connection);
        Queue queue = session.createQueue("jms-short");
        MessageProducer producer = session.createProducer(queue);
        for (int n = 0; n < 10; n++) {
            producer.send(session.createTextMessage("m" + n));
        }
        try (Connection another = new JmsConnectionFactory(
                ((JmsConnectionFactory) factory).getRemoteURI() + "?jms.prefetchPolicy.all=0").createConnection()) {
            another.start();
            Session pulling = plain(another);
            MessageConsumer consumer = pulling.createConsumer(queue);
            for (int n = 0; n < 10; n++) {
                same("m" + n, next(consumer).getText());
            }
            same(null, consumer.receiveNoWait());
        }
    }

    private void large(Connection connection) throws JMSException {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(new byte[5 << 20]);
        session.createProducer(queue).send(message);
        BytesMessage found = (BytesMessage) session.createConsumer(queue).receive(PATIENCE_MS);
        same(5 << 20, found.getBodyLength());
    }

    private void many(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int n = 0; n < 3000; n++) {
            producer.send(session.createTextMessage("m" + n));
        }
        for (int n = 0; n < 3000; n++) {
            same("m" + n, next(consumer).getText());
        }
        silence(consumer);
    }

    private void reconnect(Connection connection) throws Exception {
        Session session = plain(connection);
        Queue queue = session.createQueue(queueName);
        MessageProducer producer = session.createProducer(queue);
        MessageConsumer consumer = session.createConsumer(queue);
        for (int n = 0; n < 100; n++) {
            producer.send(session.createTextMessage("m" + n));
            if (n == 10) {
                System.out.println("reconnect begun");
                System.out.flush();
            }
            Thread.sleep(10);
        }
        TreeSet<String> seen = new TreeSet<>();
        while (seen.size() < 100) {
            seen.add(next(consumer).getText());
        }
    }
}
