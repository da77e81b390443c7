/* Listeners that share a port (SO_REUSEPORT), each with connections of its own that it has not accepted yet. */
#include "inet.h"

#define LISTENERS 3
#define CLIENTS 24

static unsigned waiting_at(int fd) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    return info.tcpi_unacked;
}

int main(void) {
    int listeners[LISTENERS], clients[CLIENTS + 6], count = CLIENTS;
    unsigned waiting[LISTENERS];
    struct sockaddr_in name = four("127.0.0.1", 9300);
    for (int i = 0; i < LISTENERS; i++) {
        listeners[i] = (int)must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        must(set(listeners[i], SOL_SOCKET, SO_REUSEPORT, 1));
        must(bind(listeners[i], (struct sockaddr *)&name, sizeof name));
        must(listen(listeners[i], 64));
    }
    for (char i = 0; i < CLIENTS; i++) {
        clients[(int)i] = connect_four(9300);
        must(write(clients[(int)i], &i, 1));
    }
    for (int i = 0; i < LISTENERS; i++)
        waiting[i] = waiting_at(listeners[i]);
    ready();
    go();
    for (int i = 0; i < LISTENERS; i++)
        expect(waiting_at(listeners[i]) == waiting[i], "listener %d has %u waiting, not %u", i, waiting_at(listeners[i]), waiting[i]);
    for (char i = 0; i < 6; i++) { /* new ones still go to any of them */
        char number = (char)count;
        clients[count++] = connect_four(9300);
        must(write(clients[count - 1], &number, 1));
    }
    int served[CLIENTS + 6] = {0}, total = 0, by[LISTENERS] = {0};
    for (int i = 0; i < LISTENERS; i++)
        for (int fd, last = -1; (fd = accept(listeners[i], NULL, NULL)) >= 0; total++, by[i]++) {
            char number;
            expect(read(fd, &number, 1) == 1 && number > last && !served[(int)number]++, "listener %d got %d after %d", i, number, last);
            last = number;
        }
    expect(total == CLIENTS + 6, "%d of %d connections", total, CLIENTS + 6);
    expect(by[0] + by[1] + by[2] == total && waiting[0] + waiting[1] + waiting[2] == CLIENTS, "counts");
    ok();
}
