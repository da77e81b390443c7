/* A listener with a name in the file system, a connection accepted from it, and a new client after the fork. */
#include "victim.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un name_of(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/victim-%s", name);
    return address;
}

int main(void) {
    int listener = (int)must(socket(AF_UNIX, SOCK_STREAM, 0)), client = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    struct sockaddr_un name = name_of("listener"), other = name_of("client"), seen;
    must(bind(listener, (struct sockaddr *)&name, sizeof name));
    must(chmod(name.sun_path, 0751));
    must(listen(listener, 5));
    must(bind(client, (struct sockaddr *)&other, sizeof other));
    must(connect(client, (struct sockaddr *)&name, sizeof name));
    int accepted = (int)must(accept(listener, NULL, NULL));
    must(write(client, "hello", 5));
    must(write(accepted, "welcome", 7));
    ready();
    go();
    char text[32] = "";
    socklen_t length = sizeof seen;
    expect(read(accepted, text, 31) == 5 && !strcmp(text, "hello"), "read %s", text);
    expect(read(client, text, 31) == 7 && !strcmp(text, "welcome"), "read %s", text);
    must(getpeername(client, (struct sockaddr *)&seen, &length));
    expect(!strcmp(seen.sun_path, name.sun_path), "the client's peer is %s", seen.sun_path);
    length = sizeof seen;
    must(getsockname(accepted, (struct sockaddr *)&seen, &length));
    expect(!strcmp(seen.sun_path, name.sun_path), "the accepted one is called %s", seen.sun_path);
    length = sizeof seen;
    must(getpeername(accepted, (struct sockaddr *)&seen, &length));
    expect(!strcmp(seen.sun_path, other.sun_path), "the accepted one's peer is %s", seen.sun_path);
    struct stat info;
    must(stat(name.sun_path, &info));
    expect((info.st_mode & 0777) == 0751, "mode %o", info.st_mode & 0777);
    int late = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(connect(late, (struct sockaddr *)&name, sizeof name));
    int second = (int)must(accept(listener, NULL, NULL));
    must(write(late, "late", 4));
    memset(text, 0, sizeof text);
    expect(read(second, text, 31) == 4 && !strcmp(text, "late"), "read %s", text);
    struct ucred peer;
    length = sizeof peer;
    must(getsockopt(second, SOL_SOCKET, SO_PEERCRED, &peer, &length));
    expect(peer.pid == getpid(), "the late client is pid %d", peer.pid);
    ok();
}
