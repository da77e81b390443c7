/* A connection that nobody has accepted yet, with words in it, of a client that has a name of its own. */
#include "letters.h"

int main(void) {
    int listener = bound(SOCK_STREAM, "@victim listens"), client = bound(SOCK_STREAM, "@victim calls");
    must(listen(listener, 5));
    must(dial(client, "@victim listens"));
    must(write(client, "waiting", 7));
    ready();
    go();
    int accepted = (int)must(accept(listener, NULL, NULL));
    expect_text(accepted, "waiting");
    must(write(accepted, "served", 6));
    expect_text(client, "served");
    ok();
}
