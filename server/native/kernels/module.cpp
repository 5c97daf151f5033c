// The Python module: functions of addresses and sizes. It checks nothing; the modules of
// llmendpoint_server.engine that call it do.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <new>

#include "layer.h"
#include "sampling.h"

namespace {

// The arguments of a call, in turn. Whole numbers are addresses, sizes or flags.
struct Arguments {
  PyObject* const* next;

  long whole() { return long(PyLong_AsSsize_t(*next++)); }
  float real() { return float(PyFloat_AsDouble(*next++)); }
  template <class T>
  T* address() {
    return static_cast<T*>(PyLong_AsVoidPtr(*next++));
  }
};

PyObject* expect(Py_ssize_t given, Py_ssize_t wanted) {
  return PyErr_Format(PyExc_TypeError, "takes %zd arguments, and got %zd", wanted, given);
}

// Call work(T{}) without Python's lock, for T bfloat16 or float.
template <class Work>
PyObject* compute(bool is_bf16, Work work) {
  if (PyErr_Occurred()) return nullptr;
#ifndef HAS_BF16
  if (is_bf16) return PyErr_Format(PyExc_ValueError, "this variant has no bfloat16 arithmetic");
#endif
  PyThreadState* state = PyEval_SaveThread();
  bool fits = true;
  try {
#ifdef HAS_BF16
    if (is_bf16)
      work(Bf16{});
    else
#endif
      work(float{});
  } catch (const std::bad_alloc&) {
    fits = false;
  }
  PyEval_RestoreThread(state);
  return fits ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

PyObject* linear(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 13) return expect(count, 13);
  Arguments a{args};
  const long is_bf16 = a.whole();
  Linear l;
  l.weights.w = a.address<void>();
  l.weights.scale = a.address<float>();
  l.weights.bias = a.address<float>();
  l.weights.zero = a.address<float>();
  l.weights.bits = a.whole();
  l.weights.group = a.whole();
  l.x = a.address<void>();
  l.y = a.address<void>();
  l.rows = a.whole();
  l.outputs = a.whole();
  l.inputs = a.whole();
  l.ending = Ending(a.whole());
  return compute(is_bf16, [&](auto type) { multiply_all<decltype(type)>(l); });
}

PyObject* layers(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 19) return expect(count, 19);
  Arguments a{args};
  const long is_bf16 = a.whole();
  Run r;
  r.layers = a.address<Layer>();
  r.pages = a.address<Pages>();
  r.count = a.whole();
  r.hidden = a.whole();
  r.heads = a.whole();
  r.kv_heads = a.whole();
  r.dim = a.whole();
  r.width = a.whole();
  r.x = a.address<void>();
  r.cos = a.address<void>();
  r.sin = a.address<void>();
  r.rows = a.address<int>();
  r.tables = a.address<int>();
  r.slots = a.address<int>();
  r.sequences = a.whole();
  r.tokens = a.whole();
  r.rotary = a.whole();
  r.kept = Kept(a.whole());
  return compute(is_bf16, [&](auto type) { compute_layers<decltype(type)>(r); });
}

PyObject* attend_pages(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 21) return expect(count, 21);
  Arguments a{args};
  const long is_bf16 = a.whole();
  Attention t;
  t.query = a.address<void>();
  t.query_token = a.whole();
  t.query_head = a.whole();
  t.out = a.address<void>();
  t.keys = a.address<void>();
  t.values = a.address<void>();
  t.sinks = a.address<float>();
  t.rows = a.address<int>();
  t.tables = a.address<int>();
  t.sequences = a.whole();
  t.heads = a.whole();
  t.kv_heads = a.whole();
  t.key_dim = a.whole();
  t.value_dim = a.whole();
  t.window = a.whole();
  t.scale = a.real();
  t.softcap = a.real();
  t.key_scales = a.address<float>();
  t.value_scales = a.address<float>();
  t.kept = Kept(a.whole());
  return compute(is_bf16, [&](auto type) { attend<decltype(type)>(t); });
}

PyObject* write_pages(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 17) return expect(count, 17);
  Arguments a{args};
  const long is_bf16 = a.whole();
  Writing w;
  w.key = a.address<void>();
  w.key_token = a.whole();
  w.key_head = a.whole();
  w.value = a.address<void>();
  w.value_token = a.whole();
  w.value_head = a.whole();
  w.keys = a.address<void>();
  w.values = a.address<void>();
  w.slots = a.address<int>();
  w.tokens = a.whole();
  w.kv_heads = a.whole();
  w.key_dim = a.whole();
  w.value_dim = a.whole();
  w.key_scales = a.address<float>();
  w.value_scales = a.address<float>();
  w.kept = Kept(a.whole());
  return compute(is_bf16, [&](auto type) { write<decltype(type)>(w); });
}

PyObject* norm(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 7) return expect(count, 7);
  Arguments a{args};
  const long is_bf16 = a.whole();
  const void* x = a.address<void>();
  const float* weight = a.address<float>();
  const float eps = a.real();
  void* to = a.address<void>();
  const long rows = a.whole(), dim = a.whole();
  return compute(is_bf16, [&](auto type) {
    using T = decltype(type);
    normalize(static_cast<const T*>(x), weight, eps, static_cast<T*>(to), rows, dim);
  });
}

PyObject* rotate_heads(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 11) return expect(count, 11);
  Arguments a{args};
  const long is_bf16 = a.whole();
  void* x = a.address<void>();
  const void *cos = a.address<void>(), *sin = a.address<void>();
  const float* weight = a.address<float>();
  const float eps = a.real();
  const long tokens = a.whole(), heads = a.whole(), stride = a.whole(), dim = a.whole(), rotary = a.whole();
  return compute(is_bf16, [&](auto type) {
    using T = decltype(type);
    rotate(static_cast<T*>(x), static_cast<const T*>(cos), static_cast<const T*>(sin), weight, eps, tokens, heads, stride, dim,
           rotary);
  });
}

PyObject* sample_tokens(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 10) return expect(count, 10);
  Arguments a{args};
  const long is_bf16 = a.whole();
  sampling::Batch b;
  b.logits = a.address<void>();
  b.rows = a.whole();
  b.stride = a.whole();
  b.size = a.whole();
  b.temperature = a.address<double>();
  b.top_p = a.address<double>();
  b.top_k = a.address<int64_t>();
  b.noise = a.address<double>();
  b.tokens = a.address<int64_t>();
  if (PyErr_Occurred()) return nullptr;
  if (b.size < 1 || b.size > sampling::LARGEST_VOCABULARY)
    return PyErr_Format(PyExc_ValueError, "a row of %zd logits; it must be 1 to %zd", Py_ssize_t(b.size),
                        Py_ssize_t(sampling::LARGEST_VOCABULARY));
  PyThreadState* state = PyEval_SaveThread();
  const bool done = is_bf16 ? sampling::sample<Bf16>(b) : sampling::sample<float>(b);
  PyEval_RestoreThread(state);
  return done ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

#define FUNCTION(name, function) {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL, nullptr}

PyMethodDef functions[] = {
    FUNCTION("layers", layers),
    FUNCTION("linear", linear),
    FUNCTION("attend", attend_pages),
    FUNCTION("write", write_pages),
    FUNCTION("norm", norm),
    FUNCTION("rotate", rotate_heads),
    FUNCTION("sample", sample_tokens),
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, STRINGIZED_NAME, "Kernels for one kind of processor.", -1, functions,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC MODULE_INIT() {
#ifdef HAS_AMX
  if (!claim_tiles()) {
    PyErr_SetString(PyExc_ImportError, "the kernel does not let this process use the processor's matrix tiles");
    return nullptr;
  }
  constexpr bool tiles = true;
#else
  constexpr bool tiles = false;
#endif
#ifdef HAS_BF16
  constexpr bool bf16 = true;
#else
  constexpr bool bf16 = false;
#endif
  PyObject* made = PyModule_Create(&module);
  if (made == nullptr) return nullptr;
  PyModule_AddIntConstant(made, "LANES", LANES);
  PyModule_AddIntConstant(made, "PAGE", PAGE);
  PyModule_AddIntConstant(made, "VOCABULARY", sampling::LARGEST_VOCABULARY);
  PyModule_AddIntConstant(made, "BF16", bf16);
  PyModule_AddIntConstant(made, "LAYER", sizeof(Layer));
  PyModule_AddIntConstant(made, "INPUTS", tiles ? TILE_INPUTS : 2);
  return made;
}
