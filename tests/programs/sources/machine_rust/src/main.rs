// Tasks that hand numbers round, sleepers, a ticker, blocking work, a child process, and a server that is its own client.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

const MEMBERS: usize = 100;
const HOPS: u64 = 40000;

static TICKS: AtomicU64 = AtomicU64::new(0);
static SLEPT: AtomicU64 = AtomicU64::new(0);
static SERVED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

async fn ring() -> u64 {
    let (tell, told) = oneshot::channel();
    let tell = Arc::new(Mutex::new(Some(tell)));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..MEMBERS).map(|_| mpsc::channel::<(u64, u64)>(1)).unzip();
    for (i, mut receiver) in receivers.into_iter().enumerate() {
        let next = senders[(i + 1) % MEMBERS].clone();
        let tell = tell.clone();
        tokio::spawn(async move {
            while let Some((mut hop, mut sum)) = receiver.recv().await {
                hop += 1;
                sum += hop * (i as u64 + 1) % 1000;
                if hop == HOPS {
                    let _ = tell.lock().unwrap().take().unwrap().send(sum);
                    return;
                }
                if hop % 400 == 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let _ = next.send((hop, sum)).await;
            }
        });
    }
    let _ = senders[0].send((0, 0)).await;
    told.await.unwrap()
}

async fn client() {
    let stream = TcpStream::connect("127.0.0.1:8090").await.unwrap();
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    for i in 1..=300u64 {
        write.write_all(b"GET /served HTTP/1.1\r\n\r\n").await.unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).await.unwrap();
            if let Some(number) = line.strip_prefix("Content-Length: ") {
                length = number.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body).await.unwrap();
        if String::from_utf8(body).unwrap() != i.to_string() {
            WRONG.fetch_add(1, SeqCst);
        }
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
}

struct Child {
    input: tokio::process::ChildStdin,
    output: BufReader<tokio::process::ChildStdout>,
}

struct State {
    owns: Mutex<Vec<String>>,
    child: tokio::sync::Mutex<Child>,
    result: tokio::sync::Mutex<Option<JoinHandle<String>>>,
}

async fn answer(state: &State, target: &str) -> String {
    let (path, value) = match target.split_once('=') {
        Some((path, value)) => (path.split('?').next().unwrap(), value),
        None => (target, ""),
    };
    match path {
        "/served" => (SERVED.fetch_add(1, SeqCst) + 1).to_string(),
        "/far" => TICKS.load(SeqCst).to_string(),
        "/own" => {
            let mut owns = state.owns.lock().unwrap();
            owns.push(format!("\"{value}\""));
            format!("[{}]", owns.join(", "))
        }
        "/after" => {
            let begun = Instant::now();
            tokio::time::sleep(Duration::from_millis(value.parse().unwrap())).await;
            begun.elapsed().as_millis().to_string()
        }
        "/child" => {
            let mut child = state.child.lock().await;
            child.input.write_all(format!("{value}\n").as_bytes()).await.unwrap();
            let mut line = String::new();
            child.output.read_line(&mut line).await.unwrap();
            format!("\"{}\\n\"", line.trim())
        }
        "/result" => state.result.lock().await.take().unwrap().await.unwrap(),
        _ => "\"unknown\"".into(),
    }
}

async fn serve(state: Arc<State>, stream: TcpStream) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    loop {
        let mut request = String::new();
        if lines.read_line(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).await.unwrap_or(0) == 0 || line == "\r\n" {
                break;
            }
        }
        let body = answer(&state, request.split(' ').nth(1).unwrap_or("")).await;
        let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.len(), body);
        if write.write_all(whole.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::main(worker_threads = 3)]
async fn main() {
    let listener = TcpListener::bind("127.0.0.1:8090").await.unwrap();
    let mut child = tokio::process::Command::new("/bin/sh")
        .args(["-c", "while read line; do echo \"echo $line\"; done"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let talk = Child { input: child.stdin.take().unwrap(), output: BufReader::new(child.stdout.take().unwrap()) };
    tokio::spawn(async {
        let mut interval = tokio::time::interval(Duration::from_millis(10));
        loop {
            interval.tick().await;
            TICKS.fetch_add(1, SeqCst);
        }
    });
    let work = tokio::spawn(async {
        let ring = tokio::spawn(ring());
        let sleepers: Vec<_> = (0..1000)
            .map(|i| {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(i * 2)).await;
                    SLEPT.fetch_add(1, SeqCst);
                })
            })
            .collect();
        let blocking: Vec<_> = (0..4u64)
            .map(|seed| {
                tokio::task::spawn_blocking(move || {
                    let mut x = seed;
                    for _ in 0..100 {
                        let piece: Vec<u64> = (0..10000).map(|i| x.wrapping_add(i)).collect();
                        x = piece.iter().fold(x, |sum, v| sum.wrapping_mul(6364136223846793005).wrapping_add(*v));
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    x
                })
            })
            .collect();
        let client = tokio::spawn(client());
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
        let mut sum = 0u64;
        for thread in blocking {
            sum ^= thread.await.unwrap();
        }
        if client.await.is_err() {
            WRONG.fetch_add(1, SeqCst);
        }
        let ring = ring.await.unwrap();
        format!("{{\"ring\": {}, \"slept\": {}, \"wrong\": {}, \"blocking\": {}}}", ring, SLEPT.load(SeqCst), WRONG.load(SeqCst), sum)
    });
    let state = Arc::new(State {
        owns: Mutex::new(vec![]),
        child: tokio::sync::Mutex::new(talk),
        result: tokio::sync::Mutex::new(Some(work)),
    });
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(serve(state.clone(), stream));
    }
}
