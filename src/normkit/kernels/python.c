/* The short way from Python to the row kernel, for inference on small inputs, where what surrounds the kernel is most of the time.
 *
 * The one file of the kernels that knows of Python and of torch; it may be left out, and then every call goes through ctypes.
 * `row` takes what the kernel would take in any case, and says None to all else: the ordinary way then decides, or finds the words
 * for what is wrong. Only the error of a tensor that DLPack does not lend is passed over: what a signal raises is raised. What a tensor is, torch tells anew in every call, by the table of functions that DLPack gives a library; no
 * address outlives the call. The record goes through the same gate as every other.
 *
 * Only Python's stable interface is used, so that one build serves every version.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <string.h>
#include "cpu/normkit.h"

int normkit_row_forward(const RowForward *call);

/* A tensor, and the table, as dlpack.h 1.3 has them. */
typedef struct {
    void *data;
    struct { int32_t type, id; } device;
    int32_t axes;
    struct { uint8_t code, bits; uint16_t lanes; } type;
    int64_t *shape, *strides;
    uint64_t offset;
} Tensor;

typedef struct {
    struct { uint32_t major, minor; } version;
    void *older, *allocate, *export, *import;
    int (*look)(PyObject *, Tensor *);                                       /* lends what the tensor holds; -1: an error is set */
    void *stream;
} Table;

enum { CPU = 1, FLOAT = 2, BFLOAT = 4 };                                     /* as DLPack numbers them */

static struct { PyObject *tensor, *parameter, *empty_like, *unusual, *is_neg, *storage, *nbytes, *offset; const Table *table; } torch;

static int false_of(PyObject *answer)
{
    int no = answer && PyObject_Not(answer) == 1;
    Py_XDECREF(answer);
    return no;
}

/* Whether nothing is around the call that must see torch's own operations; an error of those that are asked stays set. */
static int usual(void)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(torch.unusual); i++)
        if (!false_of(PyObject_CallNoArgs(PyTuple_GetItem(torch.unusual, i)))) return 0;
    return 1;
}

/* A tensor of no subclass, whose numbers stand in memory with their sign. */
static int plain(PyObject *x)
{
    PyObject *type = (PyObject *)Py_TYPE(x);
    return (type == torch.tensor || type == torch.parameter) && false_of(PyObject_CallMethodObjArgs(x, torch.is_neg, NULL));
}

/* What a method without arguments counts; -1, with an error set, where it does not. */
static int64_t counted(PyObject *of, PyObject *method)
{
    PyObject *answer = of ? PyObject_CallMethodObjArgs(of, method, NULL) : NULL;
    int64_t count = answer ? PyLong_AsLongLong(answer) : -1;
    Py_XDECREF(answer);
    return count;
}

static int type_of(const Tensor *x)
{
    if (x->type.lanes != 1) return NONE;
    if (x->type.code == BFLOAT) return x->type.bits == 16 ? BF16 : NONE;
    return x->type.code != FLOAT ? NONE : x->type.bits == 32 ? F32 : x->type.bits == 16 ? F16 : x->type.bits == 64 ? F64 : NONE;
}

/* Reads a plain tensor on the CPU that fills its memory in order, and counts its entries. */
static int in_order(PyObject *from, Tensor *x, Array *array, int64_t *count)
{
    if (torch.table->look(from, x)) return PyErr_Clear(), 0;
    if (x->device.type != CPU || !x->data || x->offset || !type_of(x)) return 0;
    *count = 1;
    for (int i = x->axes; i--; *count *= x->shape[i])
        if (x->shape[i] != 1 && x->strides[i] != *count) return 0;
    *array = (Array){x->data, *count * (x->type.bits / 8)};
    return *count > 0;
}

/* Whether the storage of a tensor in order still holds all of it: one that was given back leaves an address behind. */
static int held(PyObject *x)
{
    Tensor like;
    Array array;
    int64_t count;
    if (!in_order(x, &like, &array, &count)) return 0;
    PyObject *storage = PyObject_CallMethodObjArgs(x, torch.storage, NULL);
    int64_t bytes = counted(storage, torch.nbytes), offset = bytes < 0 ? -1 : counted(x, torch.offset);
    Py_XDECREF(storage);
    return offset >= 0 && offset <= bytes / (like.type.bits / 8) - count;
}

static int usable(PyObject *x) { return plain(x) && held(x); }

static int is(PyObject *number, int64_t wanted)
{
    int over;
    return PyLong_Check(number) && PyLong_AsLongLongAndOverflow(number, &over) == wanted && !over;
}

/* x, normalized over its last axis; NULL where that is not for here, with or without an error set. */
static PyObject *normalized(PyObject *x, PyObject *weight, PyObject *bias, const RowPlan *constants, PyObject *shape)
{
    RowForward call = {*constants};
    Tensor like, gain, shift, result;
    int64_t all, gains, shifts, made;
    int gained = weight != Py_None, shifted = bias != Py_None;
    if (!usual() || !usable(x) || (gained && !usable(weight)) || (shifted && !usable(bias))) return NULL;

    PyObject *y = PyObject_CallFunctionObjArgs(torch.empty_like, x, NULL);
    if (!y) return NULL;
    /* From here to the kernel no other thread has a turn: what is read is what the kernel finds. */
    RowPlan *plan = &call.plan;
    int fit = in_order(x, &like, &call.x, &all) && like.axes > 0 && in_order(y, &result, &call.y, &made);
    if (fit) {
        plan->x_type = type_of(&like);
        plan->dim = like.shape[like.axes - 1];
        plan->part = plan->part ? plan->part : plan->dim;
        call.rows = all / plan->dim;
        fit = type_of(&result) == plan->x_type;
    }
    if (fit && shape != Py_None) fit = PyTuple_Check(shape) && PyTuple_Size(shape) == 1 && is(PyTuple_GetItem(shape, 0), plan->dim);
    if (fit && gained) {
        fit = in_order(weight, &gain, &call.weight, &gains) && gain.axes <= 1 && (gains == plan->dim || gains == 1);
        plan->weight_type = fit ? type_of(&gain) : NONE;
        plan->shared = fit && gains == 1 && plan->dim != 1;
    }
    if (fit && shifted) {
        fit = in_order(bias, &shift, &call.bias, &shifts) && shift.axes == 1 && shifts == plan->dim;
        plan->bias_type = fit ? type_of(&shift) : NONE;
    }
    if (fit) {
        Py_BEGIN_ALLOW_THREADS
        fit = normkit_row_forward(&call) == DONE;
        Py_END_ALLOW_THREADS
    }
    if (fit) return y;
    Py_DECREF(y);
    return NULL;
}

/* row(x, weight, bias, constants, shape): the constants are a RowPlan without types and sizes. */
static PyObject *row(PyObject *self, PyObject *const *given, Py_ssize_t count)
{
    RowPlan constants;
    PyObject *y = NULL;
    if (torch.table && count == 5 && PyBytes_Check(given[3]) && PyBytes_Size(given[3]) == sizeof constants) {
        memcpy(&constants, PyBytes_AsString(given[3]), sizeof constants);
        y = normalized(given[0], given[1], given[2], &constants, given[4]);
    }
    if (y || PyErr_Occurred()) return y;
    Py_RETURN_NONE;
}

/* prepare(Tensor, Parameter, empty_like, unusual): what the short way needs of torch; an error where torch is too old for it.
 * unusual: a tuple of functions, each of which says something true where the ordinary way must be taken. */
static PyObject *prepare(PyObject *self, PyObject *given)
{
    PyObject *tensor, *parameter, *empty_like, *unusual;
    if (!PyArg_ParseTuple(given, "OOOO!", &tensor, &parameter, &empty_like, &PyTuple_Type, &unusual)) return NULL;
    PyObject *capsule = PyObject_GetAttrString(tensor, "__dlpack_c_exchange_api__");
    const Table *table = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    if (!table) return NULL;
    if (table->version.major != 1 || !table->look) {
        PyErr_SetString(PyExc_ImportError, "torch's table of DLPack is of another version");
        return NULL;
    }
    torch.is_neg = PyUnicode_InternFromString("is_neg"), torch.storage = PyUnicode_InternFromString("untyped_storage");
    torch.nbytes = PyUnicode_InternFromString("nbytes"), torch.offset = PyUnicode_InternFromString("storage_offset");
    if (!torch.is_neg || !torch.storage || !torch.nbytes || !torch.offset) return NULL;
    torch.tensor = tensor, torch.parameter = parameter, torch.empty_like = empty_like, torch.unusual = unusual;
    Py_INCREF(tensor), Py_INCREF(parameter), Py_INCREF(empty_like), Py_INCREF(unusual);
    torch.table = table;                                                     /* torch's own, for as long as the process lives */
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"row", (PyCFunction)(void (*)(void))row, METH_FASTCALL, NULL},
                                  {"prepare", prepare, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "libnormkit", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_libnormkit(void) { return PyModule_Create(&module); }
