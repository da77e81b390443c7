"""Workers of multiprocessing that wait on their pipes and semaphores, with memory shared by name."""

import multiprocessing as mp
import os
from multiprocessing import shared_memory

from victim import expect, go, ok, ready


def square(n: int) -> "tuple[int, int]":
    return n * n, os.getpid()


def look(name: str) -> int:
    memory = shared_memory.SharedMemory(name)
    value = memory.buf[100]
    memory.buf[101] = 9
    memory.close()
    return value


if __name__ == "__main__":
    context = mp.get_context("fork")
    with context.Pool(3) as pool:
        before = {pid for _, pid in pool.map(square, range(30), chunksize=1)}
        memory = shared_memory.SharedMemory(create=True, size=10000)
        memory.buf[100] = 7
        results = context.Queue()
        results.put({"kept": [1, 2]})
        lock = context.Lock()
        lock.acquire()
        ready()
        go()
        expect([n for n, _ in pool.map(square, range(30), chunksize=1)] == [n * n for n in range(30)], "results")
        after = {pid for _, pid in pool.map(square, range(30), chunksize=1)}
        expect(len(before | after) <= 3, f"workers {before} and {after}")
        expect(pool.apply(look, (memory.name,)) == 7, "shared memory")
        expect(memory.buf[101] == 9, "what a worker wrote")
        expect(results.get(timeout=20) == {"kept": [1, 2]}, "the queue")
        expect(not lock.acquire(block=False), "the lock")
        lock.release()
        memory.close()
        memory.unlink()
        pool.terminate()
        pool.join()
    ok()
