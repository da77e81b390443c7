/* A server whose clients come, write and go at full speed, and a program that asks the kernel all the time: a fork comes between. */
#include "letters.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>

#define NAME "@victim stream"

static void serve(int listener) {
    for (;;) {
        char text[64];
        int end = (int)must(accept(listener, NULL, NULL));
        ssize_t size = must(recv(end, text, sizeof text, 0));
        (void)send(end, text, (size_t)size, MSG_NOSIGNAL);
        close(end);
    }
}

static void call(unsigned number) {
    char text[64], answer[64] = "";
    snprintf(text, sizeof text, "call %u of %d", number, getpid());
    int fd = dialled(SOCK_STREAM, NAME);
    must(send(fd, text, strlen(text), MSG_NOSIGNAL));
    if (number % 3) { /* the others do not wait for an answer */
        ssize_t size = must(recv(fd, answer, sizeof answer - 1, 0));
        expect(size == (ssize_t)strlen(text) && !strcmp(text, answer), "asked %s, was told %s", text, answer);
    }
    close(fd);
}

static void ask(int fd, unsigned sequence) {
    struct {
        struct nlmsghdr head;
        struct rtgenmsg body;
    } question = {.head = {.nlmsg_len = sizeof question, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP, .nlmsg_seq = sequence}};
    static char answer[32768];
    must(send(fd, &question, sizeof question, 0));
    for (bool done = false; !done;) {
        struct pollfd state = {.fd = fd, .events = POLLIN};
        expect(poll(&state, 1, 5000) == 1, "no answer to question %u", sequence);
        unsigned left = (unsigned)must(recv(fd, answer, sizeof answer, 0));
        for (struct nlmsghdr *item = (void *)answer; NLMSG_OK(item, left); item = NLMSG_NEXT(item, left)) {
            expect(item->nlmsg_seq == sequence, "an answer to question %u, not %u", item->nlmsg_seq, sequence);
            done |= item->nlmsg_type == NLMSG_DONE;
        }
    }
}

int main(void) {
    int listener = bound(SOCK_STREAM, NAME), netlink = (int)must(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    must(listen(listener, 16));
    pid_t server = (pid_t)must(fork()), client, asker;
    if (server == 0)
        serve(listener);
    close(listener);
    if ((client = (pid_t)must(fork())) == 0) {
        for (unsigned i = 0; !went(); i++)
            call(i);
        _exit(0);
    }
    if ((asker = (pid_t)must(fork())) == 0) {
        for (unsigned i = 1; !went(); i++) {
            ask(netlink, i);
            nap(0.001);
        }
        _exit(0);
    }
    nap(0.1);
    ready();
    go();
    child_ends_well(client);
    child_ends_well(asker);
    call(1);
    kill(server, SIGKILL);
    ok();
}
