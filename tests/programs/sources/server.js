// A server that does many things at once, and can be asked how far each has come.
const http = require('http'), crypto = require('crypto'), fs = require('fs');
const { spawn, exec } = require('child_process');
const { Worker } = require('worker_threads');

const state = { worker: { done: false, primes: 0 }, child: [], owns: [], awaited: null };
let last = 'nothing', ticks = 0;

const worker = new Worker(`
  const { parentPort } = require('worker_threads');
  const counter = new Int32Array(new SharedArrayBuffer(4));
  let primes = 0;
  for (let round = 0; round < 40; round++) {
    const sieve = new Uint8Array(10000);
    for (let i = 2; i < 10000; i++) {
      if (sieve[i]) continue;
      primes++;
      for (let j = i * i; j < 10000; j += i) sieve[j] = 1;
    }
    Atomics.wait(counter, 0, 0, 25);   // sleeps on a futex between the rounds
  }
  parentPort.postMessage(primes);
`, { eval: true });
worker.on('message', (primes) => { state.worker = { done: true, primes }; });

const child = spawn('/bin/sh', ['-c', 'while read line; do echo "echo $line"; done; exit 3'], { stdio: ['pipe', 'pipe', 'inherit'] });
let waiting = [], rest = '';
child.stdout.on('data', (data) => {
  rest += data;
  for (let at; (at = rest.indexOf('\n')) >= 0; rest = rest.slice(at + 1)) {
    const line = rest.slice(0, at);
    const answer = waiting.shift();
    if (answer) answer(line); else state.child.push(line);
  }
});
child.stdin.write('before\n');

(async () => {
  while (!fs.existsSync('/work/awaited')) await new Promise((resolve) => setTimeout(resolve, 20));
  state.awaited = await fs.promises.readFile('/work/awaited', 'utf8');
})();

const server = http.createServer((request, response) => {
  const url = new URL(request.url, 'http://x'), send = (value) => response.end(JSON.stringify(value));
  if (url.searchParams.get('own')) state.owns.push(url.searchParams.get('own'));
  if (url.pathname === '/state') send(state);
  else if (url.pathname === '/child') { waiting.push(send); child.stdin.write(url.searchParams.get('say') + '\n'); }
  else if (url.pathname === '/late') setTimeout(() => send('late'), 150);
  else if (url.pathname === '/exec') exec('seq 10 | awk "{s+=\\$1} END {print s}"', (error, out) => send(error ? String(error) : out));
});

function frame(text) { return Buffer.concat([Buffer.from([0x81, text.length]), Buffer.from(text)]); }
server.on('upgrade', (request, socket) => {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' +
    crypto.createHash('sha1').update(key).digest('base64') + '\r\n\r\n');
  const timer = setInterval(() => socket.write(frame(`tick ${++ticks}`)), 40);
  let data = Buffer.alloc(0);
  socket.on('data', (part) => {
    data = Buffer.concat([data, part]);
    while (data.length >= 6 && data.length >= 6 + (data[1] & 127)) {
      const length = data[1] & 127, mask = data.subarray(2, 6), text = data.subarray(6, 6 + length).map((c, i) => c ^ mask[i % 4]).toString();
      data = data.subarray(6 + length);
      socket.write(frame(`you said ${text}, after ${last}`));
      last = text;
    }
  });
  socket.on('error', () => {});
  socket.on('close', () => clearInterval(timer));
});

process.on('SIGTERM', () => {
  child.on('exit', (code) => { console.log(`closed, the child with ${code}`); process.exit(0); });
  child.stdin.end();
});
server.listen(8081, '127.0.0.1', () => console.log('listening'));
