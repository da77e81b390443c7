    .section .note.GNU-stack, "", @progbits
