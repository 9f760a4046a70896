// Carries tokens from one queue to the other and back in transacted sessions of Qpid JMS, whatever dies, until its input
// ends; then it prints "end".
//
// Arguments: URL and the queues. Each transaction takes a few and puts them into the other queue. Prints "m QUEUE TOKEN..."
// once its commit was answered, "d TOKEN..." if that is in doubt, and "r TOKEN..." if it was rolled back.

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.qpid.jms.JmsConnectionFactory;

public final class JmsMover {
    private static final long SHORT_MS = 50;

    private final Random random = new Random();
    private volatile boolean isStopping;

    public static void main(String[] arguments) throws Exception {
        JmsMover mover = new JmsMover();
        Thread mind = new Thread(mover::mindInput);
        mind.setDaemon(true);
        mind.start();
        try (Connection connection = new JmsConnectionFactory(arguments[0]).createConnection()) {
            connection.start();
            mover.move(connection, List.of(arguments[1], arguments[2]));
        }
        System.out.println("end");
        System.exit(0);
    }

    private void mindInput() {
        try {
            while (System.in.read() >= 0) {
                // Nothing is said there.
            }
        } catch (IOException gone) {
            // So is whoever would have said it.
        }
        isStopping = true;
    }

    private void move(Connection connection, List<String> names) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        List<MessageConsumer> consumers = new ArrayList<>();
        List<MessageProducer> producers = new ArrayList<>();
        for (String name : names) {
            consumers.add(session.createConsumer(session.createQueue(name)));
            producers.add(session.createProducer(session.createQueue(name)));
        }
        while (!isStopping) {
            int source = random.nextInt(2);
            List<String> taken = new ArrayList<>();
            boolean isAsked = false;
            try {
                int wanted = 1 + random.nextInt(3);
                for (Message message; taken.size() < wanted; ) {
                    message = consumers.get(source).receive(SHORT_MS);
                    if (message == null) {
                        break;
                    }
                    String token = ((TextMessage) message).getText();
                    taken.add(token);
                    producers.get(1 - source).send(session.createTextMessage(token));
                }
                isAsked = random.nextInt(5) > 0;
                if (isAsked) {
                    session.commit();
                    say("m " + names.get(1 - source), taken);
                } else {
                    session.rollback();
                    say("r", taken);
                }
            } catch (JMSException problem) {
                say(isAsked ? "d" : "r", taken);
                end(session);
            }
        }
    }

    private static void end(Session session) {
        try {
            session.rollback();
        } catch (JMSException problem) {
            // It was rolled back with its connection.
        }
    }

    private static void say(String what, List<String> tokens) {
        if (!tokens.isEmpty()) {
            System.out.println(what + " " + String.join(" ", tokens));
            System.out.flush();
        }
    }
}
