// Eclipse Paho's and HiveMQ's clients of MQTT 3.1.1 and 5, which do what they are asked to: a line on standard input
// is a request, written as in the query of a URL; a line of JSON on standard output is what came of it, or
// {"failed": ...}. What can be asked for is described in ../../support/mqtt_devices.py.

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttClientBuilder;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt3.Mqtt3AsyncClient;
import com.hivemq.client.mqtt.mqtt3.exceptions.Mqtt3ConnAckException;
import com.hivemq.client.mqtt.mqtt3.message.connect.Mqtt3Connect;
import com.hivemq.client.mqtt.mqtt3.message.publish.Mqtt3Publish;
import com.hivemq.client.mqtt.mqtt3.message.subscribe.Mqtt3Subscribe;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserPropertiesBuilder;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5ConnAckException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubAckException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubRecException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5SubAckException;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PayloadFormatIndicator;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import com.hivemq.client.mqtt.mqtt5.message.subscribe.Mqtt5RetainHandling;
import com.hivemq.client.mqtt.mqtt5.message.subscribe.Mqtt5Subscribe;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.eclipse.paho.mqttv5.client.IMqttToken;
import org.eclipse.paho.mqttv5.client.MqttConnectionOptions;
import org.eclipse.paho.mqttv5.client.MqttDisconnectResponse;
import org.eclipse.paho.mqttv5.common.MqttSubscription;
import org.eclipse.paho.mqttv5.common.packet.MqttProperties;
import org.eclipse.paho.mqttv5.common.packet.UserProperty;

public final class MqttClients {
    private static final long PATIENCE_MS = 20_000;
    private static final int WINDOW = 10; // publishes on their way: as many as every broker allows
    private static final Map<String, Device> DEVICES = new HashMap<>();

    private MqttClients() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null;) {
            String reply;
            try {
                reply = answer(new Request(line));
            } catch (Throwable problem) {
                problem.printStackTrace();
                reply = "{\"failed\":" + quoted(problem.toString()) + "}";
            }
            System.out.println(reply);
            System.out.flush();
        }
        System.exit(0);
    }

    private static String answer(Request asked) throws Exception {
        String name = asked.text("name");
        switch (asked.text("do")) {
            case "connect": {
                Device device = device(asked);
                String reply = device.connect(asked);
                if (!reply.contains("refused")) {
                    DEVICES.put(name, device);
                }
                return reply;
            }
            case "subscribe":
                return "{\"granted\":" + DEVICES.get(name).subscribe(asked) + "}";
            case "unsubscribe":
                DEVICES.get(name).unsubscribe(asked.text("filter"));
                return "{}";
            case "publish": {
                List<String> reasons = new ArrayList<>();
                for (int reason : DEVICES.get(name).publish(asked)) {
                    reasons.add(String.valueOf(reason));
                }
                return "{\"reasons\":[" + String.join(",", reasons) + "]}";
            }
            case "receive":
                return "{\"messages\":[" + String.join(",", DEVICES.get(name).receive(asked.number("count"))) + "]}";
            case "arrived":
                return "{\"count\":" + DEVICES.get(name).inbox.size() + "}";
            case "disconnect":
                DEVICES.remove(name).disconnect();
                return "{}";
            case "forget":
                DEVICES.remove(name).forget();
                return "{}";
            default:
                throw new IllegalArgumentException(asked.text("do"));
        }
    }

    private static Device device(Request asked) throws Exception {
        boolean isFive = asked.number("version") == 5;
        switch (asked.text("client")) {
            case "paho":
                return isFive ? new Paho5(asked) : new Paho3(asked);
            case "hivemq":
                return isFive ? new Hive5(asked) : new Hive3(asked);
            default:
                throw new IllegalArgumentException(asked.text("client"));
        }
    }

    /** What was asked for, by name. */
    private static final class Request {
        private final Map<String, String> fields = new HashMap<>();

        Request(String line) {
            for (String pair : line.split("&")) {
                String[] parts = pair.split("=", 2);
                fields.put(parts[0], URLDecoder.decode(parts[1], StandardCharsets.UTF_8));
            }
        }

        boolean has(String name) {
            return fields.containsKey(name);
        }

        String text(String name) {
            return fields.get(name);
        }

        int number(String name) {
            return Integer.parseInt(fields.getOrDefault(name, "0"));
        }

        boolean is(String name) {
            return number(name) == 1;
        }

        byte[] bytes(String name) {
            return HexFormat.of().parseHex(fields.get(name));
        }

        List<byte[]> payloads() {
            List<byte[]> found = new ArrayList<>();
            for (String payload : fields.get("payloads").split(",", -1)) {
                found.add(HexFormat.of().parseHex(payload));
            }
            return found;
        }

        List<String[]> userProperties() {
            List<String[]> found = new ArrayList<>();
            if (has("user_properties")) {
                for (String pair : text("user_properties").split(",")) {
                    found.add(pair.split("=", 2));
                }
            }
            return found;
        }
    }

    private static String quoted(String text) {
        StringBuilder built = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                built.append('\\').append(letter);
            } else if (letter < ' ' || letter > '~') {
                built.append(String.format("\\u%04x", (int) letter));
            } else {
                built.append(letter);
            }
        }
        return built.append('"').toString();
    }

    /** A message in JSON; its properties are added one by one. */
    private static final class Received {
        private final StringBuilder json = new StringBuilder("{");

        Received(String topic, byte[] payload, int qos, boolean isRetained) {
            json.append("\"topic\":").append(quoted(topic)).append(",\"payload\":\"")
                .append(HexFormat.of().formatHex(payload)).append("\",\"qos\":").append(qos)
                .append(",\"retain\":").append(isRetained);
        }

        void add(String name, String text) {
            if (text != null) {
                json.append(",\"").append(name).append("\":").append(quoted(text));
            }
        }

        void add(String name, long number) {
            json.append(",\"").append(name).append("\":").append(number);
        }

        void addUserProperties(List<String> pairs) {
            if (!pairs.isEmpty()) {
                json.append(",\"user_properties\":[").append(String.join(",", pairs)).append(']');
            }
        }

        @Override
        public String toString() {
            return json + "}";
        }
    }

    private static String pair(String key, String value) {
        return "[" + quoted(key) + "," + quoted(value) + "]";
    }

    /** One connection of one client. */
    private abstract static class Device {
        final BlockingQueue<String> inbox = new LinkedBlockingQueue<>();

        abstract String connect(Request asked) throws Exception;

        abstract int subscribe(Request asked) throws Exception;

        abstract void unsubscribe(String filter) throws Exception;

        abstract List<Integer> publish(Request asked) throws Exception;

        abstract void disconnect() throws Exception;

        /** The connection has been cut. */
        abstract void forget() throws Exception;

        List<String> receive(int count) throws InterruptedException {
            List<String> found = new ArrayList<>();
            while (found.size() < count) {
                String message = inbox.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
                if (message == null) {
                    throw new AssertionError(found.size() + " of " + count + " messages came: " + found);
                }
                found.add(message);
            }
            return found;
        }
    }

    private static final class Paho3 extends Device {
        private final org.eclipse.paho.client.mqttv3.MqttAsyncClient client;

        Paho3(Request asked) throws Exception {
            client = new org.eclipse.paho.client.mqttv3.MqttAsyncClient(
                "tcp://127.0.0.1:" + asked.number("port"), asked.text("id"),
                new org.eclipse.paho.client.mqttv3.persist.MemoryPersistence());
            client.setCallback(new org.eclipse.paho.client.mqttv3.MqttCallback() {
                @Override
                public void connectionLost(Throwable cause) {
                }

                @Override
                public void deliveryComplete(org.eclipse.paho.client.mqttv3.IMqttDeliveryToken token) {
                }

                @Override
                public void messageArrived(String topic, org.eclipse.paho.client.mqttv3.MqttMessage message) {
                    inbox.add(new Received(topic, message.getPayload(), message.getQos(), message.isRetained()).toString());
                }
            });
        }

        @Override
        String connect(Request asked) throws Exception {
            var options = new org.eclipse.paho.client.mqttv3.MqttConnectOptions();
            options.setMqttVersion(4);
            options.setCleanSession(asked.is("clean"));
            options.setMaxInflight(2 * WINDOW); // an acknowledged one counts for a moment longer
            if (asked.has("user")) {
                options.setUserName(asked.text("user"));
            }
            if (asked.has("password")) {
                options.setPassword(asked.text("password").toCharArray());
            }
            if (asked.has("will_topic")) {
                options.setWill(asked.text("will_topic"), asked.bytes("will_payload"), asked.number("will_qos"),
                    asked.is("will_retain"));
            }
            try {
                var token = client.connect(options);
                token.waitForCompletion(PATIENCE_MS);
                return "{\"present\":" + token.getSessionPresent() + "}";
            } catch (org.eclipse.paho.client.mqttv3.MqttException error) {
                if (error.getReasonCode() > 5) {
                    throw error;
                }
                return "{\"refused\":" + error.getReasonCode() + "}";
            }
        }

        @Override
        int subscribe(Request asked) throws Exception {
            var token = client.subscribe(asked.text("filter"), asked.number("qos"));
            try {
                token.waitForCompletion(PATIENCE_MS);
            } catch (org.eclipse.paho.client.mqttv3.MqttException error) {
                if (error.getReasonCode() != 0x80) {
                    throw error;
                }
                return 0x80;
            }
            return token.getGrantedQos()[0];
        }

        @Override
        void unsubscribe(String filter) throws Exception {
            client.unsubscribe(filter).waitForCompletion(PATIENCE_MS);
        }

        @Override
        List<Integer> publish(Request asked) throws Exception {
            List<Integer> reasons = new ArrayList<>();
            List<byte[]> payloads = asked.payloads();
            for (int at = 0; at < payloads.size(); at += WINDOW) {
                List<org.eclipse.paho.client.mqttv3.IMqttDeliveryToken> tokens = new ArrayList<>();
                for (byte[] payload : payloads.subList(at, Math.min(at + WINDOW, payloads.size()))) {
                    tokens.add(client.publish(asked.text("topic"), payload, asked.number("qos"), asked.is("retain")));
                }
                for (var token : tokens) {
                    token.waitForCompletion(PATIENCE_MS);
                    reasons.add(0);
                }
            }
            return reasons;
        }

        @Override
        void disconnect() throws Exception {
            client.disconnect().waitForCompletion(PATIENCE_MS);
            client.close();
        }

        @Override
        void forget() throws Exception {
            client.disconnectForcibly(0, 0, false);
            client.close(true);
        }
    }

    private static final class Paho5 extends Device {
        private final org.eclipse.paho.mqttv5.client.MqttAsyncClient client;

        Paho5(Request asked) throws Exception {
            client = new org.eclipse.paho.mqttv5.client.MqttAsyncClient(
                "tcp://127.0.0.1:" + asked.number("port"), asked.text("id"),
                new org.eclipse.paho.mqttv5.client.persist.MemoryPersistence());
            client.setCallback(new org.eclipse.paho.mqttv5.client.MqttCallback() {
                @Override
                public void disconnected(MqttDisconnectResponse response) {
                }

                @Override
                public void mqttErrorOccurred(org.eclipse.paho.mqttv5.common.MqttException error) {
                    error.printStackTrace();
                }

                @Override
                public void deliveryComplete(IMqttToken token) {
                }

                @Override
                public void connectComplete(boolean isAgain, String uri) {
                }

                @Override
                public void authPacketArrived(int reason, MqttProperties properties) {
                }

                @Override
                public void messageArrived(String topic, org.eclipse.paho.mqttv5.common.MqttMessage message) {
                    Received received =
                        new Received(topic, message.getPayload(), message.getQos(), message.isRetained());
                    MqttProperties properties = message.getProperties();
                    received.add("content_type", properties.getContentType());
                    received.add("response_topic", properties.getResponseTopic());
                    if (properties.getCorrelationData() != null) {
                        received.add("correlation", HexFormat.of().formatHex(properties.getCorrelationData()));
                    }
                    if (properties.getMessageExpiryInterval() != null) {
                        received.add("expiry", properties.getMessageExpiryInterval());
                    }
                    if (properties.getPayloadFormat()) {
                        received.add("format", 1);
                    }
                    List<String> pairs = new ArrayList<>();
                    for (UserProperty property : properties.getUserProperties()) {
                        pairs.add(pair(property.getKey(), property.getValue()));
                    }
                    received.addUserProperties(pairs);
                    inbox.add(received.toString());
                }
            });
        }

        @Override
        String connect(Request asked) throws Exception {
            var options = new MqttConnectionOptions();
            options.setCleanStart(asked.is("clean"));
            if (asked.has("expiry")) {
                options.setSessionExpiryInterval((long) asked.number("expiry"));
            }
            if (asked.has("receive_maximum")) {
                options.setReceiveMaximum(asked.number("receive_maximum"));
            }
            if (asked.has("user")) {
                options.setUserName(asked.text("user"));
            }
            if (asked.has("password")) {
                options.setPassword(asked.text("password").getBytes(StandardCharsets.UTF_8));
            }
            if (asked.has("will_topic")) {
                var will = new org.eclipse.paho.mqttv5.common.MqttMessage(asked.bytes("will_payload"));
                will.setQos(asked.number("will_qos"));
                will.setRetained(asked.is("will_retain"));
                MqttProperties properties = new MqttProperties();
                properties.setWillDelayInterval((long) asked.number("will_delay"));
                options.setWillMessageProperties(properties);
                options.setWill(asked.text("will_topic"), will);
            }
            try {
                IMqttToken token = client.connect(options);
                token.waitForCompletion(PATIENCE_MS);
                return "{\"present\":" + token.getSessionPresent() + "}";
            } catch (org.eclipse.paho.mqttv5.common.MqttException error) {
                if (error.getReasonCode() < 0x80 || error.getReasonCode() > 0xff) {
                    throw error;
                }
                return "{\"refused\":" + error.getReasonCode() + "}";
            }
        }

        @Override
        int subscribe(Request asked) throws Exception {
            MqttSubscription subscription = new MqttSubscription(asked.text("filter"), asked.number("qos"));
            subscription.setNoLocal(asked.is("no_local"));
            subscription.setRetainAsPublished(asked.is("as_published"));
            subscription.setRetainHandling(asked.number("handling"));
            IMqttToken token = client.subscribe(new MqttSubscription[] {subscription}, null, null, new MqttProperties());
            try {
                token.waitForCompletion(PATIENCE_MS);
            } catch (org.eclipse.paho.mqttv5.common.MqttException error) {
                if (token.getReasonCodes() == null || token.getReasonCodes()[0] < 0x80) {
                    throw error;
                }
            }
            return token.getReasonCodes()[0];
        }

        @Override
        void unsubscribe(String filter) throws Exception {
            client.unsubscribe(filter).waitForCompletion(PATIENCE_MS);
        }

        @Override
        List<Integer> publish(Request asked) throws Exception {
            MqttProperties properties = new MqttProperties();
            if (asked.has("content_type")) {
                properties.setContentType(asked.text("content_type"));
            }
            if (asked.has("response_topic")) {
                properties.setResponseTopic(asked.text("response_topic"));
            }
            if (asked.has("correlation")) {
                properties.setCorrelationData(asked.bytes("correlation"));
            }
            if (asked.has("expiry")) {
                properties.setMessageExpiryInterval((long) asked.number("expiry"));
            }
            if (asked.has("format")) {
                properties.setPayloadFormat(asked.is("format"));
            }
            List<UserProperty> pairs = new ArrayList<>();
            for (String[] pair : asked.userProperties()) {
                pairs.add(new UserProperty(pair[0], pair[1]));
            }
            properties.setUserProperties(pairs);
            List<Integer> reasons = new ArrayList<>();
            List<byte[]> payloads = asked.payloads();
            for (int at = 0; at < payloads.size(); at += WINDOW) {
                List<IMqttToken> tokens = new ArrayList<>();
                for (byte[] payload : payloads.subList(at, Math.min(at + WINDOW, payloads.size()))) {
                    var message = new org.eclipse.paho.mqttv5.common.MqttMessage(
                        payload, asked.number("qos"), asked.is("retain"), properties);
                    tokens.add(client.publish(asked.text("topic"), message));
                }
                for (IMqttToken token : tokens) {
                    token.waitForCompletion(PATIENCE_MS);
                    int[] codes = token.getReasonCodes();
                    reasons.add(codes == null || codes.length == 0 ? 0 : codes[0]);
                }
            }
            return reasons;
        }

        @Override
        void disconnect() throws Exception {
            client.disconnect().waitForCompletion(PATIENCE_MS);
            client.close();
        }

        @Override
        void forget() throws Exception {
            client.disconnectForcibly(0, 0, false);
            client.close(true);
        }
    }

    private static MqttClientBuilder hive(Request asked) {
        return MqttClient.builder().identifier(asked.text("id")).serverHost("127.0.0.1").serverPort(asked.number("port"));
    }

    private static <T> T done(CompletableFuture<T> future) throws Exception {
        return future.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    private static final class Hive3 extends Device {
        private final Mqtt3AsyncClient client;

        Hive3(Request asked) {
            client = hive(asked).useMqttVersion3().buildAsync();
            client.publishes(MqttGlobalPublishFilter.ALL, message -> inbox.add(new Received(
                message.getTopic().toString(), message.getPayloadAsBytes(), message.getQos().getCode(),
                message.isRetain()).toString()));
        }

        @Override
        String connect(Request asked) throws Exception {
            var connect = Mqtt3Connect.builder().cleanSession(asked.is("clean"));
            if (asked.has("user")) {
                var credentials = connect.simpleAuth().username(asked.text("user"));
                if (asked.has("password")) {
                    credentials = credentials.password(asked.text("password").getBytes(StandardCharsets.UTF_8));
                }
                connect = credentials.applySimpleAuth();
            }
            if (asked.has("will_topic")) {
                connect = connect.willPublish(Mqtt3Publish.builder().topic(asked.text("will_topic"))
                    .payload(asked.bytes("will_payload")).qos(MqttQos.fromCode(asked.number("will_qos")))
                    .retain(asked.is("will_retain")).build());
            }
            try {
                return "{\"present\":" + done(client.connect(connect.build())).isSessionPresent() + "}";
            } catch (ExecutionException error) {
                if (error.getCause() instanceof Mqtt3ConnAckException refusal) {
                    return "{\"refused\":" + refusal.getMqttMessage().getReturnCode().getCode() + "}";
                }
                throw error;
            }
        }

        @Override
        int subscribe(Request asked) throws Exception {
            var subscribe = Mqtt3Subscribe.builder().topicFilter(asked.text("filter"))
                .qos(MqttQos.fromCode(asked.number("qos"))).build();
            try {
                return done(client.subscribe(subscribe)).getReturnCodes().get(0).getCode();
            } catch (ExecutionException error) {
                if (error.getCause() instanceof com.hivemq.client.mqtt.mqtt3.exceptions.Mqtt3SubAckException refusal) {
                    return refusal.getMqttMessage().getReturnCodes().get(0).getCode();
                }
                throw error;
            }
        }

        @Override
        void unsubscribe(String filter) throws Exception {
            done(client.unsubscribe(com.hivemq.client.mqtt.mqtt3.message.unsubscribe.Mqtt3Unsubscribe.builder()
                .topicFilter(filter).build()));
        }

        @Override
        List<Integer> publish(Request asked) throws Exception {
            List<CompletableFuture<Mqtt3Publish>> futures = new ArrayList<>();
            for (byte[] payload : asked.payloads()) {
                futures.add(client.publish(Mqtt3Publish.builder().topic(asked.text("topic")).payload(payload)
                    .qos(MqttQos.fromCode(asked.number("qos"))).retain(asked.is("retain")).build()));
            }
            List<Integer> reasons = new ArrayList<>();
            for (var future : futures) {
                done(future);
                reasons.add(0);
            }
            return reasons;
        }

        @Override
        void disconnect() throws Exception {
            done(client.disconnect());
        }

        @Override
        void forget() {
        }
    }

    private static final class Hive5 extends Device {
        private final Mqtt5AsyncClient client;

        Hive5(Request asked) {
            client = hive(asked).useMqttVersion5().buildAsync();
            client.publishes(MqttGlobalPublishFilter.ALL, message -> {
                Received received = new Received(message.getTopic().toString(), message.getPayloadAsBytes(),
                    message.getQos().getCode(), message.isRetain());
                message.getContentType().ifPresent(text -> received.add("content_type", text.toString()));
                message.getResponseTopic().ifPresent(text -> received.add("response_topic", text.toString()));
                message.getCorrelationData().ifPresent(data -> {
                    byte[] bytes = new byte[data.remaining()];
                    data.get(bytes);
                    received.add("correlation", HexFormat.of().formatHex(bytes));
                });
                message.getMessageExpiryInterval().ifPresent(seconds -> received.add("expiry", seconds));
                message.getPayloadFormatIndicator().ifPresent(format -> received.add("format", format.getCode()));
                List<String> pairs = new ArrayList<>();
                message.getUserProperties().asList()
                    .forEach(property -> pairs.add(pair(property.getName().toString(), property.getValue().toString())));
                received.addUserProperties(pairs);
                inbox.add(received.toString());
            });
        }

        @Override
        String connect(Request asked) throws Exception {
            var connect = Mqtt5Connect.builder().cleanStart(asked.is("clean"))
                .sessionExpiryInterval(asked.number("expiry"));
            if (asked.has("receive_maximum")) {
                connect = connect.restrictions().receiveMaximum(asked.number("receive_maximum")).applyRestrictions();
            }
            if (asked.has("user")) {
                var credentials = connect.simpleAuth().username(asked.text("user"));
                if (asked.has("password")) {
                    credentials = credentials.password(asked.text("password").getBytes(StandardCharsets.UTF_8));
                }
                connect = credentials.applySimpleAuth();
            }
            if (asked.has("will_topic")) {
                connect = connect.willPublish().topic(asked.text("will_topic")).payload(asked.bytes("will_payload"))
                    .qos(MqttQos.fromCode(asked.number("will_qos"))).retain(asked.is("will_retain"))
                    .delayInterval(asked.number("will_delay")).applyWillPublish();
            }
            try {
                return "{\"present\":" + done(client.connect(connect.build())).isSessionPresent() + "}";
            } catch (ExecutionException error) {
                if (error.getCause() instanceof Mqtt5ConnAckException refusal) {
                    return "{\"refused\":" + refusal.getMqttMessage().getReasonCode().getCode() + "}";
                }
                throw error;
            }
        }

        @Override
        int subscribe(Request asked) throws Exception {
            var subscribe = Mqtt5Subscribe.builder().addSubscription().topicFilter(asked.text("filter"))
                .qos(MqttQos.fromCode(asked.number("qos"))).noLocal(asked.is("no_local"))
                .retainAsPublished(asked.is("as_published"))
                .retainHandling(Mqtt5RetainHandling.fromCode(asked.number("handling"))).applySubscription().build();
            try {
                return done(client.subscribe(subscribe)).getReasonCodes().get(0).getCode();
            } catch (ExecutionException error) {
                if (error.getCause() instanceof Mqtt5SubAckException refusal) {
                    return refusal.getMqttMessage().getReasonCodes().get(0).getCode();
                }
                throw error;
            }
        }

        @Override
        void unsubscribe(String filter) throws Exception {
            done(client.unsubscribeWith().topicFilter(filter).send());
        }

        @Override
        List<Integer> publish(Request asked) throws Exception {
            Mqtt5UserPropertiesBuilder pairs =
                com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperties.builder();
            for (String[] pair : asked.userProperties()) {
                pairs = pairs.add(pair[0], pair[1]);
            }
            List<CompletableFuture<Mqtt5PublishResult>> futures = new ArrayList<>();
            for (byte[] payload : asked.payloads()) {
                var publish = Mqtt5Publish.builder().topic(asked.text("topic")).payload(payload)
                    .qos(MqttQos.fromCode(asked.number("qos"))).retain(asked.is("retain"))
                    .contentType(asked.text("content_type")).responseTopic(asked.text("response_topic"))
                    .userProperties(pairs.build());
                if (asked.has("correlation")) {
                    publish = publish.correlationData(asked.bytes("correlation"));
                }
                if (asked.has("expiry")) {
                    publish = publish.messageExpiryInterval(asked.number("expiry"));
                }
                if (asked.has("format")) {
                    publish = publish.payloadFormatIndicator(
                        Mqtt5PayloadFormatIndicator.fromCode(asked.number("format")));
                }
                futures.add(client.publish(publish.build()));
            }
            List<Integer> reasons = new ArrayList<>();
            for (var future : futures) {
                reasons.add(reason(future));
            }
            return reasons;
        }

        private static int reason(CompletableFuture<Mqtt5PublishResult> future) throws Exception {
            try {
                Mqtt5PublishResult result = done(future);
                Throwable error = result.getError().orElse(null);
                if (error != null) {
                    return refusal(error);
                }
                if (result instanceof Mqtt5PublishResult.Mqtt5Qos1Result one) {
                    return one.getPubAck().getReasonCode().getCode();
                }
                if (result instanceof Mqtt5PublishResult.Mqtt5Qos2Result two) {
                    return two.getPubRec().getReasonCode().getCode();
                }
                return 0;
            } catch (ExecutionException error) {
                return refusal(error.getCause());
            }
        }

        private static int refusal(Throwable error) {
            if (error instanceof Mqtt5PubAckException one) {
                return one.getMqttMessage().getReasonCode().getCode();
            }
            if (error instanceof Mqtt5PubRecException two) {
                return two.getMqttMessage().getReasonCode().getCode();
            }
            throw new IllegalStateException(error);
        }

        @Override
        void disconnect() throws Exception {
            done(client.disconnect());
        }

        @Override
        void forget() {
        }
    }
}
