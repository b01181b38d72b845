"""The copies between arrays, tiles and the blocked layout: functions of the dtype of a plan, for arrays without a type."""
from libc.stdint cimport uint8_t

from minidl_c.op cimport real
from minidl_c.runtime.blocked_copies cimport example_to_lane, lane_to_example, pack_example, repack_example, unpack_example
from minidl_c.runtime.gather cimport pack_tile, unpack_tile


cdef copies typed(const real *dtype) noexcept:
    cdef copies c
    c.own = FLOAT32 if real is float else FLOAT64
    c.pack[<int> UINT8] = <pack_function> pack_tile[uint8_t, real]
    c.pack[<int> FLOAT32] = <pack_function> pack_tile[float, real]
    c.pack[<int> FLOAT64] = <pack_function> pack_tile[double, real]
    c.unpack = <unpack_function> unpack_tile[real]
    c.pack_example[<int> UINT8] = <pack_example_function> pack_example[uint8_t, real]
    c.pack_example[<int> FLOAT32] = <pack_example_function> pack_example[float, real]
    c.pack_example[<int> FLOAT64] = <pack_example_function> pack_example[double, real]
    c.unpack_example = <example_function> unpack_example[real]
    c.to_lane = <example_function> example_to_lane[real]
    c.from_lane = <example_function> lane_to_example[real]
    c.repack = <repack_function> repack_example[real]
    return c


cdef copies copies_of(int real_bytes) noexcept:
    return typed(<const float *> NULL) if real_bytes == 4 else typed(<const double *> NULL)
