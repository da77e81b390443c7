/* A connection that nobody has accepted yet, with words in it. */
#include "victim.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/tmp/victim-pending"};
    int listener = (int)must(socket(AF_UNIX, SOCK_STREAM, 0)), client = (int)must(socket(AF_UNIX, SOCK_STREAM, 0));
    must(bind(listener, (struct sockaddr *)&name, sizeof name));
    must(listen(listener, 5));
    must(connect(client, (struct sockaddr *)&name, sizeof name));
    must(write(client, "waiting", 7));
    ready();
    go();
    int accepted = (int)must(accept(listener, NULL, NULL));
    char text[16] = "";
    expect(read(accepted, text, 15) == 7 && !strcmp(text, "waiting"), "read %s", text);
    must(write(accepted, "served", 6));
    expect(read(client, text, 15) == 6, "the answer");
    ok();
}
