/* UDP: a bound socket, and a connected one. */
#include "victim.h"
#include <arpa/inet.h>
#include <sys/socket.h>

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET}, from, name;
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int server = (int)must(socket(AF_INET, SOCK_DGRAM, 0)), client = (int)must(socket(AF_INET, SOCK_DGRAM, 0));
    must(bind(server, (struct sockaddr *)&address, sizeof address));
    must(getsockname(server, (struct sockaddr *)&address, &length));
    must(connect(client, (struct sockaddr *)&address, sizeof address));
    length = sizeof name;
    must(getsockname(client, (struct sockaddr *)&name, &length));
    ready();
    go();
    char text[32] = "";
    must(send(client, "question", 8, 0));
    length = sizeof from;
    expect(recvfrom(server, text, 31, 0, (struct sockaddr *)&from, &length) == 8 && !strcmp(text, "question"), "read %s", text);
    expect(from.sin_port == name.sin_port, "from port %d, not %d", ntohs(from.sin_port), ntohs(name.sin_port));
    must(sendto(server, "answer", 6, 0, (struct sockaddr *)&from, sizeof from));
    expect(recv(client, text, 31, 0) == 6, "no answer");
    ok();
}
