/* POSIX message queues: open in two processes, open nowhere, unlinked but open; messages by priority, limits, modes, flags. */
#include "victim.h"
#include <mqueue.h>
#include <poll.h>

static mqd_t make(const char *name, long most, long size, mode_t mode) {
    struct mq_attr attributes = {.mq_maxmsg = most, .mq_msgsize = size};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, mode, &attributes);
    expect(queue != (mqd_t)-1, "mq_open %s", name);
    return queue;
}

static void receive(mqd_t queue, const char *text, unsigned priority) {
    char got[9000];
    unsigned with;
    ssize_t length = must(mq_receive(queue, got, sizeof got, &with));
    expect((size_t)length == strlen(text) && !memcmp(got, text, strlen(text)) && with == priority, "%.*s of %u, not %s of %u", (int)length, got,
           with, text, priority);
}

static void send(mqd_t queue, const char *text, unsigned priority) { must(mq_send(queue, text, strlen(text), priority)); }

int main(void) {
    static char big[8193];
    umask(0);
    memset(big, 'b', 8192);
    mqd_t used = make("/victim-used", 10, 8192, 0642), left = make("/victim-left", 3, 100, 0600), gone = make("/victim-gone", 4, 64, 0600);
    send(used, "first of 1", 1);
    send(used, "0", 0);
    send(used, big, 5);
    send(used, "second of 1", 1);
    send(used, "", 32767);
    send(used, "third of 1", 1);
    for (int i = 0; i < 3; i++)
        send(left, "full", 2);
    expect(mq_send(left, "x", 1, 0) == -1 && errno == EAGAIN, "it is not full");
    must(mq_close(left));
    send(gone, "gone", 9);
    must(mq_unlink("/victim-gone"));
    int reader = mq_open("/victim-used", O_RDONLY), empty = make("/victim-empty", 2, 8192, 0600);
    pid_t child = fork();
    if (child == 0) {
        char text[8192];
        mqd_t waits = mq_open("/victim-empty", O_RDONLY); /* waits through the forks */
        expect(mq_receive(waits, text, sizeof text, NULL) == 4 && !memcmp(text, "wake", 4), "what the child received");
        send(gone, "child", 10);
        _exit(0);
    }
    until_asleep(child);
    ready();
    go();
    struct mq_attr attributes;
    struct stat info;
    must(mq_getattr(used, &attributes));
    expect(attributes.mq_maxmsg == 10 && attributes.mq_msgsize == 8192 && attributes.mq_curmsgs == 6 && attributes.mq_flags == O_NONBLOCK, "limits");
    must(mq_getattr(reader, &attributes));
    expect(attributes.mq_flags == 0 && mq_send(reader, "x", 1, 0) == -1 && errno == EBADF, "a descriptor for reading");
    must(fstat(used, &info));
    expect((info.st_mode & 0777) == 0642, "mode %o", info.st_mode);
    struct pollfd poll_used = {.fd = used, .events = POLLIN | POLLOUT};
    expect(poll(&poll_used, 1, 0) == 1 && poll_used.revents == (POLLIN | POLLOUT), "poll");
    receive(reader, "", 32767);
    receive(used, big, 5);
    receive(used, "first of 1", 1);
    receive(reader, "second of 1", 1);
    receive(used, "third of 1", 1);
    receive(used, "0", 0);
    expect(mq_receive(used, big, 8192, NULL) == -1 && errno == EAGAIN, "there is another");
    left = mq_open("/victim-left", O_RDWR | O_NONBLOCK);
    expect(left != (mqd_t)-1 && mq_send(left, "x", 1, 0) == -1 && errno == EAGAIN, "the one that lay there");
    receive(left, "full", 2);
    expect(mq_open("/victim-gone", O_RDONLY) == (mqd_t)-1 && errno == ENOENT, "the unlinked one is back");
    send(empty, "wake", 0);
    child_ends_well(child);
    receive(gone, "child", 10);
    receive(gone, "gone", 9);
    must(mq_unlink("/victim-used"));
    must(mq_unlink("/victim-left"));
    must(mq_unlink("/victim-empty"));
    ok();
}
