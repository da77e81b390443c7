/* Who is said to be at the other end: whoever connected or listened then, dead or alive, with pid, groups and a pidfd. */
#include "letters.h"
#include <grp.h>
#include <poll.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define NAME "/tmp/victim-past"

static struct ucred peer_of(int fd) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    must(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length));
    return peer;
}

int main(void) {
    int gate[2], back[2], listener = bound(SOCK_STREAM, NAME), own[2];
    char text[8];
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, own));
    must(pipe(gate));
    must(pipe(back));
    /* The listener is a child's word, and the child ends; another child connects and lives, a third connects and ends. */
    pid_t listens = (pid_t)must(fork());
    if (listens == 0) {
        must(listen(listener, 8));
        must(write(back[1], "x", 1));
        must(read(gate[0], text, 1));
        _exit(0);
    }
    must(read(back[0], text, 1));
    int client = dialled(SOCK_STREAM, NAME), first = (int)must(accept(listener, NULL, NULL));
    pid_t connects[2];
    for (int i = 0; i < 2; i++) {
        connects[i] = (pid_t)must(fork());
        if (connects[i] == 0) {
            int fd = dialled(SOCK_STREAM, NAME);
            must(write(fd, i ? "ended" : "lives", 5));
            must(write(back[1], "x", 1));
            if (i)
                _exit(0);
            for (;;)
                pause();
        }
        must(read(back[0], text, 1));
    }
    int second = (int)must(accept(listener, NULL, NULL)), third = (int)must(accept(listener, NULL, NULL));
    must(write(gate[1], "x", 1));
    child_ends_well(listens);
    child_ends_well(connects[1]);
    must(listen(listener, 8)); /* and from now on it is the parent's word */
    int later = dialled(SOCK_STREAM, NAME), last = (int)must(accept(listener, NULL, NULL));
    ready();
    go();
    expect(peer_of(client).pid == listens, "the listener was pid %d, not %d", peer_of(client).pid, listens);
    expect(peer_of(first).pid == getpid(), "the first client was pid %d", peer_of(first).pid);
    expect(peer_of(second).pid == connects[0], "the second client was pid %d, not %d", peer_of(second).pid, connects[0]);
    expect(peer_of(third).pid == connects[1], "the third client was pid %d, not %d", peer_of(third).pid, connects[1]);
    expect(peer_of(later).pid == getpid() && peer_of(last).pid == getpid(), "the later ones were pid %d and %d", peer_of(later).pid, peer_of(last).pid);
    expect(peer_of(own[0]).pid == getpid() && peer_of(own[1]).uid == getuid(), "a pair was made by pid %d", peer_of(own[0]).pid);
    expect(peer_of(listener).pid == getpid(), "pid %d listens", peer_of(listener).pid);
    gid_t groups[64], mine[64];
    socklen_t length = sizeof groups;
    must(getsockopt(second, SOL_SOCKET, SO_PEERGROUPS, groups, &length));
    int count = getgroups(64, mine);
    expect((int)(length / sizeof *groups) == count && !memcmp(groups, mine, length), "%zu groups, not %d", length / sizeof *groups, count);
    int pidfd = -1;
    length = sizeof pidfd;
    if (getsockopt(second, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) { /* since Linux 6.5 */
        must(syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0));
        struct pollfd end = {.fd = pidfd, .events = POLLIN};
        expect(poll(&end, 1, 5000) == 1, "the pidfd is not of the client");
    } else
        kill(connects[0], SIGKILL);
    int status;
    expect(waitpid(connects[0], &status, 0) == connects[0] && WIFSIGNALED(status), "the client was not what the pidfd names");
    expect_text(second, "lives");
    expect_text(third, "ended");
    expect(read(third, text, 1) == 0, "the third client is still there");
    ok();
}
