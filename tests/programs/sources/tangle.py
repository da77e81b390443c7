"""Everything Python offers for doing several things at once, going on at the same time; asked through a FIFO."""

import asyncio
import concurrent.futures
import hashlib
import json
import multiprocessing
import multiprocessing.managers
import os
import queue
import subprocess
import sys
import threading
import time
from multiprocessing import shared_memory


def square(n):
    time.sleep(0.02)
    return n * n


def fill(name, part):
    """A worker writes its part of memory that all share."""
    block = shared_memory.SharedMemory(name)
    for i in range(1000):
        block.buf[part * 1000 + i] = (part * 7 + i) % 251
        if i % 100 == 0:
            time.sleep(0.05)
    block.close()
    return part


def count(value, lock, rounds):
    for _ in range(rounds):
        with lock:
            value.value += 1
        time.sleep(0.001)


def crunch(seed):
    digest = str(seed).encode()
    for _ in range(60000):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()


async def dialogue(results):
    """A server, clients in dialogue with it, a queue with producers and consumers, and a shell pipeline."""

    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def talk(n):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(60):
            writer.write(f"client {n} line {i}\n".encode())
            answer = await reader.readline()
            assert answer == f"CLIENT {n} LINE {i}\n".encode(), answer
            await asyncio.sleep(0.02)
        writer.close()
        await writer.wait_closed()
        return 60

    line, got = asyncio.Queue(5), []

    async def produce():
        for i in range(200):
            await line.put(i)
            await asyncio.sleep(0.005)
        await line.put(None)

    async def consume():
        while (i := await line.get()) is not None:
            got.append(i)

    async def late():
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 1.2)
        except TimeoutError:
            return "timed out"

    pipeline = await asyncio.create_subprocess_shell(
        "for i in $(seq 1 60); do echo $i; sleep 0.02; done | awk '{s += $1} END {print s}'", stdout=subprocess.PIPE
    )
    talks, _, _, piped, timed = await asyncio.gather(
        asyncio.gather(*(talk(n) for n in range(8))), produce(), consume(), pipeline.communicate(), late()
    )
    server.close()
    results["asyncio"] = [sum(talks), got == list(range(200)), int(piped[0]), timed]


def threads(results):
    condition, tokens, local, barrier = (
        threading.Condition(),
        queue.PriorityQueue(),
        threading.local(),
        threading.Barrier(4),
    )
    done = []

    def work(me):
        local.me, local.total = me, 0
        while True:
            _, token = tokens.get()
            if token is None:
                break
            local.total += token
            time.sleep(0.001)
        barrier.wait(60)
        with condition:
            done.append((local.me, local.total))
            condition.notify_all()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for i in range(1, 2001):
        tokens.put((i, i))
    for i in range(4):
        tokens.put((10**6 + i, None))
    with condition:
        assert condition.wait_for(lambda: len(done) == 4, 60)
    for worker in workers:
        worker.join()
    results["threads"] = [sorted(me for me, _ in done), sum(total for _, total in done)]


def pipelines(results):
    source = subprocess.Popen(
        [sys.executable, "-c", "import time\nfor i in range(100): print(i, flush=True); time.sleep(.012)"],
        stdout=subprocess.PIPE,
    )
    sort = subprocess.Popen(["sort", "-rn"], stdin=source.stdout, stdout=subprocess.PIPE, text=True)
    source.stdout.close()
    lines = sort.communicate(timeout=60)[0].split()
    results["pipeline"] = [lines == [str(i) for i in range(99, -1, -1)], source.wait(), sort.returncode]


def main():
    results, context = {}, multiprocessing.get_context(sys.argv[1])
    block = shared_memory.SharedMemory(create=True, size=8000)
    value, lock = context.Value("i", 0), context.Lock()
    counters = [context.Process(target=count, args=(value, lock, 500)) for _ in range(3)]
    for process in counters:
        process.start()
    manager = context.Manager()
    table = manager.dict()
    with context.Pool(3) as pool, concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as executor:
        squares = pool.map_async(square, range(120))
        fills = pool.starmap_async(fill, [(block.name, part) for part in range(8)])
        hashes = [executor.submit(crunch, seed) for seed in range(10)]
        jobs = [threading.Thread(target=job, args=(results,)) for job in (threads, pipelines)]
        jobs.append(threading.Thread(target=lambda: asyncio.run(dialogue(results))))
        for job in jobs:
            job.start()
        time.sleep(0.1)
        with open("/work/busy", "w") as file:
            file.write("busy\n")
        with open("/work/go") as fifo:  # waits until somebody writes a word for this branch
            word = fifo.read().strip()
        table["word"] = word
        results["squares"] = sum(squares.get(60))
        results["filled"] = [sorted(fills.get(60)), hashlib.sha256(bytes(block.buf[:8000])).hexdigest()]
        results["hashes"] = hashlib.sha256("".join(f.result(60) for f in hashes).encode()).hexdigest()
        for job in jobs:
            job.join(60)
    for process in counters:
        process.join(60)
    results["counted"] = [value.value, [process.exitcode for process in counters]]
    results["word"] = table["word"]
    manager.shutdown()
    block.close()
    block.unlink()
    results["left"] = threading.active_count()
    with open("/work/result.new", "w") as file:
        json.dump(results, file)
    os.rename("/work/result.new", "/work/result")


if __name__ == "__main__":
    main()
