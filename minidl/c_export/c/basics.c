/* basics.c: what functions and loops are written with. */

#if defined __clang__
#define NOINLINE static __attribute__((noinline))
#elif defined __GNUC__ && __GNUC__ >= 8
#define NOINLINE static __attribute__((noipa))
#elif defined __GNUC__
#define NOINLINE static __attribute__((noinline, noclone))
#else
#define NOINLINE static
#endif

#if defined __clang__ || (defined __GNUC__ && __GNUC__ >= 8)
#define UNROLL _Pragma("GCC unroll 32")
#else
#define UNROLL
#endif

#if defined __GNUC__
#define INLINE static inline __attribute__((always_inline, unused))
#else
#define INLINE static inline
#endif

typedef intptr_t integer;              /* sizes and offsets */

#define EACH(i, n) for (integer i = 0; i < (n); i++)
