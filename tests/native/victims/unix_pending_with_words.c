/*
 * A server that is busy: clients of two types have connected, and written, and wait for answers in every way there is. It
 * accepts them late: in order, with their words, borders, descriptors and names, and it can answer all of them.
 */
#include "letters.h"
#include <poll.h>
#include <sys/epoll.h>

#define CLIENTS 5

static const struct {
    int type;
    const char *name;
} kinds[] = {{SOCK_STREAM, "/tmp/victim-with-words"}, {SOCK_SEQPACKET, "@victim with words"}};

static void *reader(void *at) {
    char text[64] = "";
    int fd = *(int *)at;
    ssize_t got = read(fd, text, sizeof text - 1);
    expect(got == 6 && !strcmp(text, "answer"), "the thread read %zd bytes, %s", got, text);
    return NULL;
}

static void serve(int k, int listener, const int *client, pid_t child, int *ends) {
    for (int i = 0; i < CLIENTS; i++) {
        struct pollfd state = {.fd = listener, .events = POLLIN};
        expect(poll(&state, 1, 5000) == 1, "client %d of kind %d is not there", i, k);
        ends[i] = (int)must(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
        struct ucred peer;
        socklen_t length = sizeof peer;
        must(getsockopt(ends[i], SOL_SOCKET, SO_PEERCRED, &peer, &length));
        expect(peer.pid == (i == 3 ? child : getpid()), "client %d is pid %d", i, peer.pid);
        if (i == 0) {
            if (kinds[k].type == SOCK_SEQPACKET) {
                expect_text(ends[i], "one");
                expect_text(ends[i], "");
                expect_text(ends[i], "two");
            } else
                expect_text(ends[i], "onetwo");
            expect(recv(ends[i], &length, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "there is more of client 0");
        } else if (i == 1) {
            int passed = fetch_one(ends[i], "passed");
            expect_text(passed, "in a pair");
            must(write(passed, "back", 4));
        } else if (i == 2) { /* has written nothing yet */
            expect(recv(ends[i], &length, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "client 2 has written");
            must(write(client[i], "late", 4));
            expect_text(ends[i], "late");
        } else if (i == 3)
            expect_text(ends[i], "from a child");
        else {
            expect_text(ends[i], "last words");
            expect(recv(ends[i], &length, 1, 0) == 0, "client 4 has not shut its side");
        }
    }
    must(fcntl(listener, F_SETFL, O_NONBLOCK));
    expect(accept(listener, NULL, NULL) == -1 && errno == EAGAIN, "there is one more");
}

int main(void) {
    int listener[2], client[2][CLIENTS], kept[2], ends[2][CLIENTS], epoll[2], extra[2], tell[2];
    pid_t child[2];
    pthread_t thread[2];
    for (int k = 0; k < 2; k++) {
        listener[k] = bound(kinds[k].type, kinds[k].name);
        must(listen(listener[k], CLIENTS));
        for (int i = 0; i < 3; i++)
            client[k][i] = dialled(kinds[k].type, kinds[k].name);
        must(write(client[k][0], "one", 3));
        if (kinds[k].type == SOCK_SEQPACKET)
            must(send(client[k][0], "", 0, 0));
        must(write(client[k][0], "two", 3));
        int pair[2];
        must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        must(write(pair[0], "in a pair", 9));
        post_away(client[k][1], "passed", pair[1]);
        kept[k] = pair[0];
        extra[k] = (int)must(fcntl(client[k][1], F_DUPFD_CLOEXEC, 100));
        must(fcntl(client[k][1], F_SETFL, O_NONBLOCK));
        epoll[k] = (int)must(epoll_create1(0));
        struct epoll_event watch = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = 0x1234567800000000ull + (unsigned)k};
        must(epoll_ctl(epoll[k], EPOLL_CTL_ADD, client[k][1], &watch));
        must(pthread_create(&thread[k], NULL, reader, &client[k][0]));
        int told[2];
        must(pipe(told));
        tell[k] = told[0];
        if ((child[k] = (pid_t)must(fork())) == 0) {
            int fd = dialled(kinds[k].type, kinds[k].name);
            char text[64] = "";
            must(write(fd, "from a child", 12));
            expect(read(fd, text, sizeof text - 1) == 6 && !strcmp(text, "answer"), "the child read %s", text);
            must(write(told[1], "ok", 2));
            pause();
        }
        until_asleep(child[k]);
        client[k][3] = -1;
        client[k][4] = dialled(kinds[k].type, kinds[k].name);
        must(write(client[k][4], "last words", 10));
        must(shutdown(client[k][4], SHUT_WR));
    }
    nap(0.05);
    ready();
    go();
    for (int k = 0; k < 2; k++) {
        serve(k, listener[k], client[k], child[k], ends[k]);
        struct epoll_event seen;
        expect(epoll_wait(epoll[k], &seen, 1, 0) == 0, "something is there already: %x", seen.events);
        expect_text(kept[k], "back");
        for (int i = 0; i < CLIENTS; i++)
            must(write(ends[k][i], "answer", 6));
        expect(epoll_wait(epoll[k], &seen, 1, 5000) == 1 && seen.events == EPOLLIN, "the epoll has not seen the answer");
        expect(seen.data.u64 == 0x1234567800000000ull + (unsigned)k, "the epoll says %llx", (unsigned long long)seen.data.u64);
        must(pthread_join(thread[k], NULL));
        expect(fcntl(extra[k], F_GETFD) == FD_CLOEXEC && fcntl(client[k][1], F_GETFD) == 0, "close-on-exec flags");
        expect(fcntl(extra[k], F_GETFL) & O_NONBLOCK, "it is not non-blocking any more");
        expect_text(extra[k], "answer");
        expect_text(client[k][2], "answer");
        expect_text(client[k][4], "answer");
        char text[8];
        expect(read(tell[k], text, sizeof text) == 2, "the child was not answered");
        must(kill(child[k], SIGKILL));
        must(waitpid(child[k], NULL, 0));
    }
    ok();
}
