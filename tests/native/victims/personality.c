/* A process that switched off address randomisation for what it starts keeps it off. */
#include "victim.h"

#include <sys/personality.h>

int main(void) {
    must(personality(ADDR_NO_RANDOMIZE));
    ready();
    go();
    expect(personality(0xffffffff) == ADDR_NO_RANDOMIZE, "personality %x", personality(0xffffffff));
    ok();
}
