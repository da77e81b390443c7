/* Who the other side of a connection was when it connected: pid, user and group. */
#include "victim.h"
#include <sys/socket.h>

int main(void) {
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    ready();
    go();
    struct ucred peer;
    socklen_t length = sizeof peer;
    must(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length));
    expect(peer.pid == getpid() && peer.uid == getuid() && peer.gid == getgid(), "pid %d, uid %d, gid %d", peer.pid, peer.uid, peer.gid);
    ok();
}
