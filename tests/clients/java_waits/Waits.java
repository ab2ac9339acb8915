import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.client.protocol.RedisCommand;
import org.redisson.config.Config;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.util.SafeEncoder;

/**
 * Waits for a lock with a Java client and its default time-outs and retries.
 *
 * <p>Waits jedis|lettuce|redisson PORT KEY OWNER [ID]
 */
public final class Waits {
    /** Sends a command and returns its reply; null for nil. */
    interface Client {
        Object call(String... words) throws Exception;
    }

    public static void main(String[] args) {
        String port = args[1], key = args[2];
        Stream<String> command = Stream.of("LOCK.ACQUIRE", key, "EX", "60", "WAIT", "20000", "OWNER", args[3]);
        Stream<String> attempt = args.length > 4 ? Stream.of("ID", args[4]) : Stream.of();
        try {
            Client client = client(args[0], port);
            Object token = client.call(Stream.concat(command, attempt).toArray(String[]::new));
            System.out.println("token " + token);
            if (token != null) {
                System.out.println("released " + client.call("LOCK.RELEASE", key, token.toString()));
            }
        } catch (Exception error) {
            System.out.println("gave up: " + error.toString().lines().findFirst().orElse(""));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // the libraries' threads would keep the process alive
    }

    private static Client client(String library, String port) {
        switch (library) {
            case "jedis":
                var jedis = redis.clients.jedis.RedisClient.create("127.0.0.1", Integer.parseInt(port));
                return words -> jedis.executeCommand(
                        new CommandArguments(() -> SafeEncoder.encode(words[0])).addObjects(List.of(rest(words))));
            case "lettuce":
                var lettuce = io.lettuce.core.RedisClient.create("redis://127.0.0.1:" + port).connect().sync();
                return words -> {
                    CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
                    for (String word : rest(words)) arguments.add(word);
                    return lettuce.dispatch(keyword(words[0]), new IntegerOutput<>(StringCodec.UTF8), arguments);
                };
            default:
                // Redisson has no call for module commands; its own objects use this one.
                var config = new Config();
                config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
                var redisson = ((Redisson) Redisson.create(config)).getCommandExecutor();
                return words -> redisson.get(redisson.writeAsync(words[1], org.redisson.client.codec.StringCodec.INSTANCE,
                        new RedisCommand<Object>(words[0]), (Object[]) rest(words)));
        }
    }

    private static String[] rest(String[] words) {
        return Arrays.copyOfRange(words, 1, words.length);
    }

    private static ProtocolKeyword keyword(String name) {
        return () -> name.getBytes(StandardCharsets.US_ASCII);
    }
}
