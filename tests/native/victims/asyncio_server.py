"""An idle asyncio server with a timer, a unix listener and a subprocess: it serves after the fork."""

import asyncio

from victim import HERE, expect, ok, ready, went


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(b"echo " + line)
        await writer.drain()
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    unix_server = await asyncio.start_unix_server(serve, "/tmp/victim-asyncio")
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    assert child.stdin and child.stdout
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02)
            ticks += 1

    ticker = asyncio.create_task(tick())
    ready()
    while not went():
        await asyncio.sleep(0.01)
    before = ticks
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"one\n")
    expect(await reader.readline() == b"echo one\n", "the TCP server")
    reader, writer = await asyncio.open_unix_connection("/tmp/victim-asyncio")
    writer.write(b"two\n")
    expect(await reader.readline() == b"echo two\n", "the unix server")
    child.stdin.write(b"three\n")
    expect(await child.stdout.readline() == b"three\n", "the subprocess")
    child.stdin.close()
    expect(await asyncio.wait_for(child.wait(), 20) == 0, "its end")
    while ticks < before + 3:
        await asyncio.sleep(0.01)
    (HERE / "made").write_text(await asyncio.to_thread(lambda: "in a thread"))
    ticker.cancel()
    expect(unix_server.is_serving(), "the unix server has stopped")
    ok()


asyncio.run(main())
