/* A process in accept() and one in recv(): both get what comes after the fork. */
#include "blocked.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/tmp/victim-accept"};
static int pair[2];

static void end_it(void) {
    int client = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(connect(client, (struct sockaddr *)&name, sizeof name));
    must(write(client, "in", 2));
    must(send(pair[0], "datagram", 8, 0));
}

int main(void) {
    int listener = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(bind(listener, (struct sockaddr *)&name, sizeof name));
    must(listen(listener, 5));
    must(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    pid_t child = fork();
    if (child == 0) {
        char text[32];
        ssize_t got = recv(pair[1], text, 32, 0);
        expect(got == 8, "recv gave %zd", got);
        _exit(0);
    }
    until_asleep(child);
    pthread_t id = herald_start(end_it);
    int accepted = accept(listener, NULL, NULL);
    char text[8] = "";
    expect(accepted >= 0, "accept gave %d", accepted);
    expect(read(accepted, text, 7) == 2 && !strcmp(text, "in"), "read %s", text);
    pthread_join(id, NULL);
    child_ends_well(child);
    ok();
}
