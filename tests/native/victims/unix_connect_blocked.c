/* A connect() that waits since the backlog is full: it goes through when somebody has been accepted. */
#include "blocked.h"
#include "letters.h"

static int listener;

static void end_it(void) {
    struct timespec moment = {0, 100000000};
    nanosleep(&moment, NULL);
    for (int i = 0; i < 2; i++)
        must(accept(listener, NULL, NULL));
}

int main(void) {
    listener = bound(SOCK_STREAM, "/tmp/victim-full");
    must(listen(listener, 0));
    dialled(SOCK_STREAM, "/tmp/victim-full");
    int late = (int)must(socket(AF_UNIX, SOCK_STREAM, 0)), never = (int)must(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    expect(dial(never, "/tmp/victim-full") == -1 && errno == EAGAIN, "there is room");
    pthread_t id = herald_start(end_it);
    must(dial(late, "/tmp/victim-full"));
    double waited = now();
    pthread_join(id, NULL);
    expect(went(), "it went through before anybody was accepted (at %f)", waited);
    ok();
}
