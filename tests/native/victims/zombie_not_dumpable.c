/* A child that hid itself from others (not dumpable) and was killed: its status is what it was. */
#include "victim.h"

int main(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        must(prctl(PR_SET_DUMPABLE, 0));
        raise(SIGKILL);
    }
    while (kin_of(child).state != 'Z')
        nap(0.002);
    ready();
    go();
    expect(waitpid(child, &status, 0) == child && status == SIGKILL, "status %x, not %x", status, SIGKILL);
    ok();
}
