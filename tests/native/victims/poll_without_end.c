/* poll, ppoll with a mask, and select without a timeout wait for what comes after the fork. */
#include "blocked.h"
#include <poll.h>
#include <sys/select.h>

static int pipes[3][2];
static atomic_int asleep, done;

static void *selects(void *argument) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[1][0], &set);
    asleep++;
    int result = select(pipes[1][0] + 1, &set, NULL, NULL, NULL);
    expect(result == 1 && FD_ISSET(pipes[1][0], &set), "select gave %d", result);
    done++;
    return argument;
}

static void *ppolls(void *argument) {
    struct pollfd wait = {.fd = pipes[2][0], .events = POLLIN};
    sigset_t mask;
    sigfillset(&mask);
    asleep++;
    int result = ppoll(&wait, 1, NULL, &mask);
    expect(result == 1, "ppoll gave %d", result);
    done++;
    return argument;
}

static void end_it(void) {
    for (int i = 2; i >= 0; i--)
        must(write(pipes[i][1], "x", 1));
}

int main(void) {
    pthread_t ids[3];
    for (int i = 0; i < 3; i++)
        must(pipe(pipes[i]));
    must(-pthread_create(&ids[0], NULL, selects, NULL));
    must(-pthread_create(&ids[1], NULL, ppolls, NULL));
    while (asleep < 2)
        nap(0.002);
    nap(0.05);
    ids[2] = herald_start(end_it);
    struct pollfd wait = {.fd = pipes[0][0], .events = POLLIN};
    int result = poll(&wait, 1, -1);
    expect(result == 1 && wait.revents == POLLIN, "poll gave %d, %x", result, wait.revents);
    for (int i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
    expect(done == 2, "%d", done);
    ok();
}
