# What `waiting.py` has as bytes: `as` makes them of this, `objcopy -O binary -j .text` takes them out.
.intel_syntax noprefix
.globl _start
_start:
  xor edi, edi                  # SIG_BLOCK
  call mask
again:
  mov eax, 128                  # rt_sigtimedwait(waited, NULL, NULL, 8)
  lea rdi, [rip+waited]
  xor esi, esi
  xor edx, edx
  mov r10d, 8
  syscall
  test eax, eax                 # EINTR
  js again
  mov edi, 1                    # SIG_UNBLOCK
  call mask
  mov rcx, [rsp]                # argc, argv, NULL, environment
  lea rdx, [rsp+rcx*8+16]
  lea rsi, [rsp+16]             # its arguments are the program and that one's
  mov rdi, [rsi]
  mov eax, 59                   # execve
  syscall
  mov edi, 127
  mov eax, 60                   # exit
  syscall
mask:
  mov eax, 14                   # rt_sigprocmask(edi, blocked, NULL, 8)
  lea rsi, [rip+blocked]
  xor edx, edx
  mov r10d, 8
  syscall
  ret
waited: .quad 0x200             # SIGUSR1
blocked: .quad 0xa00            # SIGUSR1 and SIGUSR2
