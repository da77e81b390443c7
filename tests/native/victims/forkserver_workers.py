"""Workers of a fork server, with a connection handed to one of them and not yet taken out of its socket."""

import multiprocessing
import multiprocessing.reduction
import os
import socket

import victim


def work(tasks, answers) -> None:
    for task in iter(tasks.recv, None):
        if isinstance(task, tuple):  # a socket, handed over by descriptor
            with socket.socket(fileno=multiprocessing.reduction.recv_handle(task_channel(task))) as passed:
                passed.sendall(b"from %d" % os.getpid())
            answers.send("passed")
        else:
            answers.send((task, task * task, os.getpid()))


def task_channel(task):
    from multiprocessing.connection import Client

    return Client(task[0], "AF_UNIX")


def main() -> None:
    from multiprocessing.connection import Listener

    context = multiprocessing.get_context("forkserver")
    workers = []
    for _ in range(2):
        (tasks, worker_tasks), (worker_answers, answers) = context.Pipe(), context.Pipe()
        process = context.Process(target=work, args=(worker_tasks, answers), daemon=True)
        process.start()
        workers.append((process, tasks, worker_answers))
    for number, (process, tasks, answers) in enumerate(workers):
        tasks.send(number)
        victim.expect(answers.recv() == (number, number * number, process.pid), f"worker {number}")
    here, there = socket.socketpair()
    listener = Listener("/tmp/victim-handles", "AF_UNIX")
    process, tasks, answers = workers[0]
    tasks.send(("/tmp/victim-handles",))
    channel = listener.accept()
    sender, receiver = socket.socketpair()
    multiprocessing.reduction.sendfds(sender, [there.fileno()])
    there.close()
    victim.ready()
    victim.go()
    (handle,) = multiprocessing.reduction.recvfds(receiver, 1)
    multiprocessing.reduction.send_handle(channel, handle, process.pid)
    os.close(handle)
    victim.expect(answers.recv() == "passed", "the worker did not take the socket")
    victim.expect(here.recv(64) == b"from %d" % process.pid, "the worker's words")
    for number, (process, tasks, answers) in enumerate(workers):
        tasks.send(number + 10)
        victim.expect(answers.recv() == (number + 10, (number + 10) ** 2, process.pid), f"worker {number}, later")
    fresh = context.Process(target=work, args=context.Pipe())
    fresh.start()
    victim.expect(fresh.pid and fresh.is_alive(), "the fork server starts nobody")
    fresh.kill()
    fresh.join()
    victim.ok()


if __name__ == "__main__":
    main()
