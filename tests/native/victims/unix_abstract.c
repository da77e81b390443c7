/* Sockets with abstract names: a listener, and datagrams between two that are not connected. */
#include "victim.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static socklen_t name_of(struct sockaddr_un *address, const char *name) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    strcpy(address->sun_path + 1, name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

int main(void) {
    struct sockaddr_un name, from;
    int listener = (int)must(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0)), a = (int)must(socket(AF_UNIX, SOCK_DGRAM, 0)), b = (int)must(socket(AF_UNIX, SOCK_DGRAM, 0));
    socklen_t length = name_of(&name, "victim listener");
    must(bind(listener, (struct sockaddr *)&name, length));
    must(listen(listener, 1));
    length = name_of(&name, "victim a");
    must(bind(a, (struct sockaddr *)&name, length));
    length = name_of(&name, "victim b");
    must(bind(b, (struct sockaddr *)&name, length));
    ready();
    go();
    must(sendto(a, "letter", 6, 0, (struct sockaddr *)&name, length));
    char text[16] = "";
    socklen_t from_length = sizeof from;
    expect(recvfrom(b, text, 15, 0, (struct sockaddr *)&from, &from_length) == 6 && !strcmp(text, "letter"), "read %s", text);
    expect(!memcmp(from.sun_path, "\0victim a", 9), "from %s", from.sun_path + 1);
    int client = (int)must(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    length = name_of(&name, "victim listener");
    must(connect(client, (struct sockaddr *)&name, length));
    must(accept(listener, NULL, NULL));
    expect(accept(listener, NULL, NULL) == -1 && errno == EAGAIN, "it blocks");
    ok();
}
