/* Processes that wait for a message of some type, and for room in a full queue. */
#include "victim.h"
#include <sys/ipc.h>
#include <sys/msg.h>

struct message {
    long type;
    char text[512];
};

static int queue, full;

static pid_t receiver(long type) {
    pid_t child = fork();
    if (child == 0) {
        struct message message;
        expect(msgrcv(queue, &message, sizeof message.text, type, 0) == 4, "received by %ld", type);
        expect(message.type == labs(type), "type %ld, not %ld", message.type, type);
        _exit(0);
    }
    until_asleep(child);
    return child;
}

int main(void) {
    queue = (int)must(msgget(IPC_PRIVATE, 0600));
    full = (int)must(msgget(IPC_PRIVATE, 0600));
    struct message message = {.type = 99};
    while (msgsnd(full, &message, 512, IPC_NOWAIT) == 0)
        ;
    pid_t five = receiver(5), low = receiver(-2), sender = fork();
    if (sender == 0) {
        message.type = 100;
        must(msgsnd(full, &message, 512, 0));
        _exit(0);
    }
    until_asleep(sender);
    ready();
    go();
    nap(0.05);
    expect(!waitpid(five, NULL, WNOHANG) && !waitpid(low, NULL, WNOHANG) && !waitpid(sender, NULL, WNOHANG), "one is back already");
    message.type = 5;
    must(msgsnd(queue, &message, 4, 0));
    child_ends_well(five);
    expect(!waitpid(low, NULL, WNOHANG), "a message of another type was taken");
    message.type = 2;
    must(msgsnd(queue, &message, 4, 0));
    child_ends_well(low);
    must(msgrcv(full, &message, 512, 0, 0));
    child_ends_well(sender);
    expect(msgrcv(full, &message, 512, 100, 0) == 512, "what the sender sent");
    must(msgctl(queue, IPC_RMID, NULL));
    must(msgctl(full, IPC_RMID, NULL));
    ok();
}
