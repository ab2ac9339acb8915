package dev.serverlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarFile;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The package as users get it: built with sources and Javadoc, installed in a repository, and used by an empty project,
 * which runs the README and examples/java.
 */
class PackageTest {
    private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
    private static final Pattern NAME = Pattern.compile("public class (\\w+)");
    private static final String JEDIS = dependency("redis.clients", "jedis", "8.0.2");
    private static final String LETTUCE = dependency("io.lettuce", "lettuce-core", "7.7.0.RELEASE");

    private static TestServer server;

    @TempDir
    private Path folder;

    @BeforeAll
    static void start() throws Exception {
        server = new TestServer();
    }

    @AfterAll
    static void end() throws Exception {
        server.close();
    }

    private static Path repository() {
        String path = System.getenv("SERVERLOCK_REPOSITORY");
        if (path == null) {
            throw new IllegalStateException("SERVERLOCK_REPOSITORY must name the repository with the package");
        }
        return Path.of(path);
    }

    private static String dependency(String group, String artifact, String version) {
        return "<dependency><groupId>" + group + "</groupId><artifactId>" + artifact + "</artifactId><version>"
                + version + "</version></dependency>";
    }

    private String run(List<String> words) throws Exception {
        Process process = new ProcessBuilder(words)
                .directory(folder.toFile())
                .redirectErrorStream(true)
                .redirectOutput(folder.resolve("output").toFile())
                .start();
        boolean hasEnded = process.waitFor(180, TimeUnit.SECONDS);
        process.destroyForcibly();
        String output = Files.readString(folder.resolve("output"));
        assertTrue(hasEnded && process.exitValue() == 0, () -> words + ": " + output);
        return output;
    }

    /** Compiles and runs a program in a project with only this package and one library. */
    private String play(String source, String library) throws Exception {
        String name = build(source, library);
        return run(List.of("java", "-cp", "target/classes:target/dependency/*", name));
    }

    /** Compiles a program, and returns its class name. */
    private String build(String source, String library) throws Exception {
        Matcher name = NAME.matcher(source);
        assertTrue(name.find(), source);
        String here = source.replace("localhost:6379", "127.0.0.1:" + server.port)
                .replace("\"localhost\", 6379", "\"127.0.0.1\", " + server.port)
                .replace("step < 10", "step < 1")
                .replace("sleep(1000)", "sleep(10)");
        assertTrue(here.contains("" + server.port), "the program does not connect to port 6379");
        Path sources = Files.createDirectories(folder.resolve("src/main/java"));
        Files.writeString(sources.resolve(name.group(1) + ".java"), here);
        Files.writeString(
                folder.resolve("pom.xml"),
                "<project><modelVersion>4.0.0</modelVersion>"
                        + "<groupId>empty</groupId><artifactId>empty</artifactId><version>1</version>"
                        + "<properties><maven.compiler.release>17</maven.compiler.release>"
                        + "<project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>"
                        + "<build><pluginManagement><plugins>"
                        + plugin("maven-resources-plugin", "3.3.1") + plugin("maven-compiler-plugin", "3.13.0")
                        + plugin("maven-dependency-plugin", "3.8.1")
                        + "</plugins></pluginManagement></build><dependencies>"
                        + dependency("dev.serverlock", "serverlock", "1.0.0") + library + "</dependencies></project>");
        run(List.of(
                "mvn",
                "--batch-mode",
                "--quiet",
                "-Dmaven.repo.local=" + repository(),
                "compile",
                "dependency:copy-dependencies"));
        return name.group(1);
    }

    private static String plugin(String name, String version) {
        return "<plugin><artifactId>" + name + "</artifactId><version>" + version + "</version></plugin>";
    }

    private static List<String> readme() throws IOException {
        List<String> blocks = new ArrayList<>();
        Matcher found = BLOCK.matcher(Files.readString(Path.of("README.md")));
        while (found.find()) {
            blocks.add(found.group(1));
        }
        assertEquals(6, blocks.size());
        return blocks;
    }

    @Test
    void theExampleWithJedisRunsInAnEmptyProject() throws Exception {
        String output = play(readme().get(0), JEDIS);
        assertTrue(output.contains("working, token 1"), output);
        assertTrue(server.isFree("report"));
        assertTrue(Files.list(folder.resolve("target/dependency"))
                .noneMatch(jar -> jar.toString().contains("lettuce")));
    }

    @Test
    void theExampleWithLettuceRunsInAnEmptyProject() throws Exception {
        String output = play(readme().get(1), LETTUCE);
        assertTrue(output.contains("held to the end: true"), output);
        server.call("LOCK.ACQUIRE", "nightly", "PX", 60_000);
        String refused = run(List.of("java", "-cp", "target/classes:target/dependency/*", "Nightly"));
        assertTrue(refused.contains("the lock \"nightly\": somebody else has it"), refused);
    }

    @Test
    void theExampleThatRunsOncePerPeriodRunsInAnEmptyProject() throws Exception {
        String output = play(readme().get(2), JEDIS);
        assertTrue(output.contains("working, token") && output.contains("RAN"), output);
        String again = run(List.of("java", "-cp", "target/classes:target/dependency/*", "Job"));
        assertTrue(again.contains("ELSEWHERE") && !again.contains("working"), again);
    }

    @Test
    void theExampleThatComputesAValueRunsInAnEmptyProject() throws Exception {
        String output = play(readme().get(3), JEDIS);
        assertTrue(output.contains("computing, token 1") && output.contains("42 pages"), output);
        assertTrue(server.isFree("report"));
    }

    @Test
    void theExampleWithReactorRunsInAnEmptyProject() throws Exception {
        String output = play(readme().get(4), LETTUCE);
        assertTrue(output.contains("working, token"), output);
        assertTrue(server.isFree("orders"));
    }

    @Test
    void theExampleOfATestIsOneOfTheseTests() throws Exception {
        String test = Files.readString(Path.of("src/test/java/readme/ReportTest.java"));
        assertEquals(test, "package readme;\n\n" + readme().get(5));
    }

    @Test
    void thePoolOfAnOldJedisWorks() throws Exception {
        String source = """
                import dev.serverlock.Held;
                import dev.serverlock.Locks;
                import dev.serverlock.jedis.JedisServer;
                import java.time.Duration;
                import redis.clients.jedis.JedisPooled;

                public class Old {
                    public static void main(String[] args) throws InterruptedException {
                        JedisPooled jedis = new JedisPooled("localhost", 6379);
                        Locks locks = Locks.over(JedisServer.ofPool(jedis.getPool()));
                        Held held = locks.lock("old", Duration.ofSeconds(1)).session().acquire();
                        new Thread(held::release).start();
                        Duration patience = Duration.ofSeconds(20);
                        try (Held next = locks.lock("old", patience).waiting(patience).acquire()) {
                            System.out.println("left " + next.verify().toSeconds());
                        }
                        locks.close();
                        jedis.close();
                    }
                }
                """;
        String output = play(source, dependency("redis.clients", "jedis", "5.2.0"));
        assertTrue(output.contains("left 1"), output);
    }

    @Test
    void anApplicationThatIsAModuleRuns() throws Exception {
        Path sources = Files.createDirectories(folder.resolve("src/main/java"));
        // Jedis has no descriptor that would require the pool.
        String required = "requires dev.serverlock; requires redis.clients.jedis; requires org.apache.commons.pool2;";
        Files.writeString(sources.resolve("module-info.java"), "module app { " + required + " }");
        String name = build("package app;\n" + readme().get(0), JEDIS);
        String path = "target/classes:target/dependency";
        String output = run(List.of("java", "--module-path", path, "--module", "app/app." + name));
        assertTrue(output.contains("working, token"), output);
    }

    @Test
    void theShortExampleRuns() throws Exception {
        String output = play(Files.readString(Path.of("../../examples/java/Report.java")), JEDIS);
        assertTrue(output.contains("working, token 1"), output);
        assertTrue(server.isFree("report"));
    }

    @Test
    void theJarHasTheScriptAndComesWithSourcesAndJavadoc() throws Exception {
        Path installed = repository().resolve("dev/serverlock/serverlock/1.0.0");
        try (JarFile jar = new JarFile(installed.resolve("serverlock-1.0.0.jar").toFile())) {
            assertTrue(jar.getEntry("dev/serverlock/lock.lua") != null);
            assertTrue(jar.getEntry("META-INF/LICENSE") != null);
            assertTrue(jar.getEntry("module-info.class") != null);
        }
        try (JarFile jar =
                new JarFile(installed.resolve("serverlock-1.0.0-sources.jar").toFile())) {
            assertTrue(jar.getEntry("dev/serverlock/Locks.java") != null);
        }
        try (JarFile jar =
                new JarFile(installed.resolve("serverlock-1.0.0-javadoc.jar").toFile())) {
            assertTrue(jar.getEntry("dev.serverlock/dev/serverlock/Locks.html") != null);
        }
    }

    @Test
    void theScriptIsAnExactCopy() throws Exception {
        assertEquals(
                Files.readString(Path.of("../../portable/lock.lua")),
                Files.readString(Path.of("src/main/resources/dev/serverlock/lock.lua")));
    }
}
