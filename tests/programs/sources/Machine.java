// Threads that hand numbers round under a lock, timers, garbage, a child process, and a server that is its own client.
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

public class Machine {
    static final int MEMBERS = 8, HOPS = 4000;
    static final AtomicLong ticks = new AtomicLong(), slept = new AtomicLong(), wrong = new AtomicLong(), served = new AtomicLong();
    static final List<String> owns = Collections.synchronizedList(new ArrayList<>());
    static final CompletableFuture<Long> ring = new CompletableFuture<>();
    static final CountDownLatch all = new CountDownLatch(2 + 200 + 1);

    static void runRing() throws Exception {
        List<BlockingQueue<long[]>> queues = new ArrayList<>();
        for (int i = 0; i < MEMBERS; i++) queues.add(new SynchronousQueue<>());
        for (int i = 0; i < MEMBERS; i++) {
            final int me = i;
            Thread thread = new Thread(() -> {
                try {
                    while (true) {
                        long[] token = queues.get(me).take();
                        token[0]++;
                        token[1] += token[0] * (me + 1) % 1000;
                        if (token[0] == HOPS) { ring.complete(token[1]); return; }
                        if (token[0] % 40 == 0) Thread.sleep(10);
                        queues.get((me + 1) % MEMBERS).put(token);
                    }
                } catch (InterruptedException e) { wrong.incrementAndGet(); }
            }, "ring-" + i);
            thread.setDaemon(true);
            thread.start();
        }
        queues.get(0).put(new long[2]);
    }

    static void churn(long seed) {
        Random random = new Random(seed);
        Map<Integer, byte[]> kept = new HashMap<>();
        for (int round = 0; round < 60; round++) {
            for (int i = 0; i < 200; i++) {
                byte[] piece = new byte[2000 + random.nextInt(8000)];
                int key = random.nextInt(500);
                Arrays.fill(piece, (byte) key);
                kept.put(key, piece);
            }
            if (round % 20 == 19) System.gc();
            for (Map.Entry<Integer, byte[]> e : kept.entrySet())
                if (e.getValue()[e.getValue().length / 2] != (byte) (int) e.getKey()) wrong.incrementAndGet();
            try { Thread.sleep(5); } catch (InterruptedException e) { wrong.incrementAndGet(); }
        }
        all.countDown();
    }

    static Map<String, String> query(URI uri) {
        Map<String, String> values = new HashMap<>();
        if (uri.getQuery() != null)
            for (String part : uri.getQuery().split("&")) values.put(part.split("=")[0], part.split("=")[1]);
        return values;
    }

    interface Answer { Object to(Map<String, String> query) throws Exception; }

    static void route(HttpServer server, String path, Answer answer) {
        server.createContext(path, exchange -> {
            String text;
            try { text = String.valueOf(answer.to(query(exchange.getRequestURI()))); }
            catch (Exception e) { text = "\"" + e + "\""; }
            byte[] data = text.getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, data.length);
            try (OutputStream out = exchange.getResponseBody()) { out.write(data); }
        });
    }

    public static void main(String[] arguments) throws Exception {
        Process child = new ProcessBuilder("/bin/sh", "-c", "while read line; do echo \"echo $line\"; done").start();
        BufferedReader out = child.inputReader();
        Writer in = child.outputWriter();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8090), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        ScheduledExecutorService timers = Executors.newScheduledThreadPool(2);
        route(server, "/served", q -> served.incrementAndGet());
        route(server, "/own", q -> { owns.add(q.get("n")); return "[\"" + String.join("\", \"", owns) + "\"]"; });
        route(server, "/far", q -> ticks.get());
        route(server, "/child", q -> {
            synchronized (child) { in.write(q.get("say") + "\n"); in.flush(); return "\"" + out.readLine() + "\\n\""; }
        });
        route(server, "/after", q -> {
            long begun = System.nanoTime();
            timers.schedule(() -> 0, Long.parseLong(q.get("ms")), TimeUnit.MILLISECONDS).get();
            return (System.nanoTime() - begun) / 1000000;
        });
        route(server, "/result", q -> {
            long sum = ring.get();
            all.await();
            return String.format("{\"ring\": %d, \"slept\": %d, \"wrong\": %d}", sum, slept.get(), wrong.get());
        });
        server.start();
        runRing();
        timers.scheduleAtFixedRate(ticks::incrementAndGet, 10, 10, TimeUnit.MILLISECONDS);
        for (int i = 0; i < 200; i++)
            timers.schedule(() -> { slept.incrementAndGet(); all.countDown(); }, i * 10, TimeUnit.MILLISECONDS);
        new Thread(() -> churn(1)).start();
        new Thread(() -> churn(2)).start();
        Thread client = new Thread(() -> { // keeps its connection alive
            HttpClient http = HttpClient.newHttpClient();
            try {
                for (long i = 1; i <= 200; i++) {
                    HttpResponse<String> answer = http.send(HttpRequest.newBuilder(URI.create("http://127.0.0.1:8090/served")).build(),
                        HttpResponse.BodyHandlers.ofString());
                    if (!answer.body().equals("" + i)) wrong.incrementAndGet();
                    Thread.sleep(5);
                }
            } catch (Exception e) { e.printStackTrace(); wrong.incrementAndGet(); }
            all.countDown();
        });
        client.setDaemon(true);
        client.start();
        System.out.println("ready");
    }
}
