/* UDP datagrams that nobody has read yet. */
#include "victim.h"
#include <arpa/inet.h>
#include <sys/socket.h>

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int server = (int)must(socket(AF_INET, SOCK_DGRAM, 0)), client = (int)must(socket(AF_INET, SOCK_DGRAM, 0));
    must(bind(server, (struct sockaddr *)&address, sizeof address));
    must(getsockname(server, (struct sockaddr *)&address, &length));
    must(sendto(client, "waiting", 7, 0, (struct sockaddr *)&address, length));
    nap(0.05);
    ready();
    go();
    char text[16] = "";
    expect(recv(server, text, 15, MSG_DONTWAIT) == 7 && !strcmp(text, "waiting"), "read %s", text);
    ok();
}
