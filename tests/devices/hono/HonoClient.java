// An application of Hono's: says what devices of a tenant send, and sends them commands.
//
// Arguments: host, port, the host of the space, tenant, user, password, authority. Says "ready", then for each message "KIND DEVICE CONTENT-TYPE
// PAYLOAD". Standard input has commands, a line each, separated by tabs: "tell" or "ask", device, name, payload; each
// is answered by "done OUTCOME".

import io.vertx.core.Future;
import io.vertx.core.Promise;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.buffer.Buffer;
import io.vertx.core.file.FileSystemOptions;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.eclipse.hono.application.client.DownstreamMessage;
import org.eclipse.hono.application.client.amqp.AmqpMessageContext;
import org.eclipse.hono.application.client.amqp.ProtonBasedApplicationClient;
import org.eclipse.hono.client.ServiceInvocationException;
import org.eclipse.hono.client.amqp.config.ClientConfigProperties;
import org.eclipse.hono.client.amqp.connection.HonoConnection;

public final class HonoClient {
    private static synchronized void say(String line) {
        System.out.println(line);
    }

    private static Function<DownstreamMessage<AmqpMessageContext>, Future<Void>> show(String kind) {
        return message -> {
            say(kind + " " + message.getDeviceId() + " " + message.getContentType() + " " + message.getPayload());
            return Future.succeededFuture();
        };
    }

    private static <T> T wait(Future<T> future) throws Exception {
        CompletableFuture<T> found = future.toCompletionStage().toCompletableFuture();
        return found.get(30, java.util.concurrent.TimeUnit.SECONDS);
    }

    private static String outcome(Future<?> future, boolean answers) {
        try {
            Object found = wait(future);
            if (!answers) return "accepted";
            DownstreamMessage<?> answer = (DownstreamMessage<?>) found;
            return answer.getStatus() + " " + answer.getPayload();
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return cause instanceof ServiceInvocationException refused ? "error " + refused.getErrorCode() : cause.toString();
        }
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Exception error) {
            error.printStackTrace();
        }
        // Vert.x has threads that would go on.
        System.exit(0);
    }

    private static void run(String[] arguments) throws Exception {
        ClientConfigProperties properties = new ClientConfigProperties();
        properties.setHost(arguments[0]);
        properties.setPort(Integer.parseInt(arguments[1]));
        properties.setAmqpHostname(arguments[2]);
        properties.setUsername(arguments[4]);
        properties.setPassword(arguments[5]);
        properties.setTlsEnabled(true);
        properties.setTrustStorePath(arguments[6]);
        properties.setReconnectAttempts(0);
        String tenant = arguments[3];
        // Without files of its own in the temporary directory.
        VertxOptions options = new VertxOptions()
            .setFileSystemOptions(new FileSystemOptions().setFileCachingEnabled(false).setClassPathResolvingEnabled(false));
        HonoConnection connection = HonoConnection.newConnection(Vertx.vertx(options), properties);
        ProtonBasedApplicationClient client = new ProtonBasedApplicationClient(connection);
        Promise<Void> ready = Promise.promise();
        client.addOnClientReadyHandler(ready);
        client.start();
        wait(ready.future());
        wait(client.createTelemetryConsumer(tenant, show("telemetry"), error -> say("closed " + error)));
        wait(client.createEventConsumer(tenant, show("event"), error -> say("closed " + error)));
        say("ready");
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = asked.readLine()) != null; ) {
            String[] words = line.split("\t");
            Buffer payload = Buffer.buffer(words[3]);
            if (words[0].equals("tell")) {
                say("done " + outcome(client.sendOneWayCommand(tenant, words[1], words[2], payload, "text/plain", null), false));
            } else {
                say("done " + outcome(client.sendCommand(tenant, words[1], words[2], payload, "text/plain", null, Duration.ofSeconds(10), null), true));
            }
        }
    }
}
