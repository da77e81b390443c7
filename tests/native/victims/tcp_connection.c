/* An established TCP connection inside the workspace, with bytes waiting in both directions. */
#include "victim.h"
#include <arpa/inet.h>
#include <sys/socket.h>

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = (int)must(socket(AF_INET, SOCK_STREAM, 0)), client = (int)must(socket(AF_INET, SOCK_STREAM, 0));
    must(bind(listener, (struct sockaddr *)&address, sizeof address));
    must(listen(listener, 1));
    must(getsockname(listener, (struct sockaddr *)&address, &length));
    must(connect(client, (struct sockaddr *)&address, sizeof address));
    int accepted = (int)must(accept(listener, NULL, NULL));
    must(write(client, "to the server", 13));
    must(write(accepted, "to the client", 13));
    ready();
    go();
    char text[32] = "";
    expect(read(accepted, text, 31) == 13 && !strcmp(text, "to the server"), "read %s", text);
    expect(read(client, text, 31) == 13 && !strcmp(text, "to the client"), "read %s", text);
    must(write(client, "more", 4));
    expect(read(accepted, text, 31) == 4, "more");
    close(client);
    expect(read(accepted, text, 31) == 0, "the end");
    ok();
}
