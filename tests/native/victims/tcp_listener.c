/* TCP listeners on IPv4 and IPv6, one with a process in accept(): clients after the fork are served. */
#include "blocked.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static struct sockaddr_in address = {.sin_family = AF_INET};
static struct sockaddr_in6 address6 = {.sin6_family = AF_INET6};

static void end_it(void) {
    int client = (int)must(socket(AF_INET, SOCK_STREAM, 0));
    must(connect(client, (struct sockaddr *)&address, sizeof address));
    must(write(client, "four", 4));
    char text[8];
    must(read(client, text, 8));
}

int main(void) {
    int listener = (int)must(socket(AF_INET, SOCK_STREAM, 0)), listener6 = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    socklen_t length = sizeof address;
    must(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    must(setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(bind(listener, (struct sockaddr *)&address, sizeof address));
    must(listen(listener, 17));
    must(getsockname(listener, (struct sockaddr *)&address, &length));
    address6.sin6_addr = in6addr_loopback;
    bool six = listener6 >= 0 && bind(listener6, (struct sockaddr *)&address6, sizeof address6) == 0;
    if (six) {
        must(listen(listener6, 3));
        length = sizeof address6;
        must(getsockname(listener6, (struct sockaddr *)&address6, &length));
    }
    pthread_t id = herald_start(end_it);
    int accepted = accept(listener, NULL, NULL);
    char text[8] = "";
    expect(accepted >= 0, "accept gave %d", accepted);
    expect(read(accepted, text, 7) == 4 && !strcmp(text, "four"), "read %s", text);
    must(write(accepted, "bye", 3));
    pthread_join(id, NULL);
    int value = 0;
    length = sizeof value;
    must(getsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &value, &length));
    expect(value == 1, "SO_REUSEADDR is lost");
    must(getsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &value, &length));
    expect(value == 1, "TCP_NODELAY is not inherited any more");
    if (six) {
        int client = (int)must(socket(AF_INET6, SOCK_STREAM, 0));
        must(connect(client, (struct sockaddr *)&address6, sizeof address6));
        must(accept(listener6, NULL, NULL));
    }
    ok();
}
