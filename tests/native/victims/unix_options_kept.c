/* Options of unix sockets: time limits, buffer sizes, credentials wanted, and where a program's own looks have got to. */
#include "letters.h"

#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

static int int_option(int fd, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

static const int names[] = {SO_PASSCRED, SO_PASSSEC, SO_PASSPIDFD, SO_PASSRIGHTS, SO_SNDBUF, SO_RCVBUF, SO_PEEK_OFF, SO_TIMESTAMP,
                            SO_RCVLOWAT, SO_PRIORITY, SO_BUF_LOCK, SO_DOMAIN, SO_TYPE, SO_ACCEPTCONN};
#define NAMES (sizeof names / sizeof *names)

int main(void) {
    int fds[7], before[7][NAMES], one = 1, zero = 0, size = 70000, looked = 4;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds + 2));
    must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds + 4));
    fds[6] = bound(SOCK_STREAM, "@victim options");
    must(listen(fds[6], 2));
    struct timeval patience = {0, 250000}, other = {3, 0}, got;
    for (int i = 0; i < 7; i += 2) {
        must(setsockopt(fds[i], SOL_SOCKET, SO_PASSCRED, &one, sizeof one));
        must(setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
        must(setsockopt(fds[i], SOL_SOCKET, SO_SNDTIMEO, &other, sizeof other));
        must(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
        (void)setsockopt(fds[i], SOL_SOCKET, SO_PASSPIDFD, &one, sizeof one);
        (void)setsockopt(fds[i], SOL_SOCKET, SO_PASSSEC, &one, sizeof one);
    }
    (void)setsockopt(fds[1], SOL_SOCKET, SO_PASSRIGHTS, &zero, sizeof zero);
    must(setsockopt(fds[1], SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one));
    must(write(fds[0], "looked at", 9));
    must(setsockopt(fds[1], SOL_SOCKET, SO_PEEK_OFF, &zero, sizeof zero));
    char text[16] = "";
    expect(recv(fds[1], text, looked, MSG_PEEK) == looked, "the first look");
    for (int i = 0; i < 7; i++)
        for (size_t j = 0; j < NAMES; j++)
            before[i][j] = int_option(fds[i], names[j]);
    ready();
    go();
    for (int i = 0; i < 7; i++)
        for (size_t j = 0; j < NAMES; j++)
            expect(int_option(fds[i], names[j]) == before[i][j], "socket %d, option %d: %d, not %d", i, names[j], int_option(fds[i], names[j]), before[i][j]);
    socklen_t length = sizeof got;
    must(getsockopt(fds[0], SOL_SOCKET, SO_SNDTIMEO, &got, &length));
    expect(got.tv_sec == 3 && got.tv_usec == 0, "the patience of writes is %ld s", got.tv_sec);
    double begun = now();
    expect(recv(fds[0], text, 1, 0) == -1 && errno == EAGAIN, "there is something");
    expect(now() - begun >= 0.24, "gave up after %f s", now() - begun);
    memset(text, 0, sizeof text);
    expect(recv(fds[1], text, 15, MSG_PEEK) == 5 && !strcmp(text, "ed at"), "the second look shows %s", text);
    expect_text(fds[1], "looked at");
    ok();
}
