// The same as that of x86_64.
.globl _start
_start:
  mov x0, 0                     // SIG_BLOCK
  bl mask
again:
  adr x0, waited                // rt_sigtimedwait(waited, NULL, NULL, 8)
  mov x1, 0
  mov x2, 0
  mov x3, 8
  mov x8, 137
  svc 0
  tbnz x0, 63, again            // EINTR
  mov x0, 1                     // SIG_UNBLOCK
  bl mask
  ldr x3, [sp]                  // argc, argv, NULL, environment
  add x1, sp, 16                // its arguments are the program and that one's
  add x2, sp, x3, lsl 3
  add x2, x2, 16
  ldr x0, [x1]
  mov x8, 221                   // execve
  svc 0
  mov x0, 127
  mov x8, 93                    // exit
  svc 0
mask:
  adr x1, blocked               // rt_sigprocmask(x0, blocked, NULL, 8)
  mov x2, 0
  mov x3, 8
  mov x8, 135
  svc 0
  ret
.balign 8
waited: .quad 0x200             // SIGUSR1
blocked: .quad 0xa00            // SIGUSR1 and SIGUSR2
