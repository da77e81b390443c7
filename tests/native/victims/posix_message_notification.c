/* A process that asked a message queue to be told of the next message. */
#include "victim.h"
#include <mqueue.h>

static volatile sig_atomic_t told;
static void on_message(int number) { told = number; }

int main(void) {
    signal(SIGUSR1, on_message);
    mqd_t queue = mq_open("/victim-tells", O_RDWR | O_CREAT, 0600, NULL);
    expect(queue != (mqd_t)-1, "mq_open");
    must(mq_notify(queue, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1}));
    ready();
    go();
    must(mq_send(queue, "x", 1, 0));
    nap(0.01);
    expect(told == SIGUSR1, "it is not told");
    must(mq_unlink("/victim-tells"));
    ok();
}
