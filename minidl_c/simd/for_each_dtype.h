/* for_each_dtype.h: includes the file named by TEMPLATE once for float and once for double.
 * Inside that file REAL is the dtype, V a vector of VL of them, M a mask or integer vector of the same width, and FN(name)
 * is name_f32 or name_f64. */

/* name_f32 or name_f64, chosen by the type of the pointer p. A header defines a macro with it for each function that a .pyx
 * calls; the .pyx declares that macro as one function of `void *`, and passes pointers of its fused type. */
#define BY_DTYPE(name, p) \
  _Generic((p), float *: name##_f32, const float *: name##_f32, double *: name##_f64, const double *: name##_f64)

/* The same, chosen by the bytes of a number: for the runtime, whose arrays have no type. */
#define BY_BYTES(name, bytes, ...) ((bytes) == 4 ? name##_f32(__VA_ARGS__) : name##_f64(__VA_ARGS__))

#define JOIN_(name, suffix) name##_##suffix
#define JOIN(name, suffix) JOIN_(name, suffix)
#define FN(name) JOIN(name, SUFFIX)
#define V FN(vector)
#define M FN(mask)
#define VL (VECTOR_BYTES / (int)sizeof(REAL))

#define REAL float
#define SUFFIX f32
#include TEMPLATE
#undef REAL
#undef SUFFIX

#define REAL double
#define SUFFIX f64
#include TEMPLATE
#undef REAL
#undef SUFFIX

#undef VL
#undef M
#undef V
#undef FN
#undef JOIN
#undef JOIN_
#undef TEMPLATE
