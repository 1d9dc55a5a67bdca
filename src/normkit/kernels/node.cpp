/* The node that autograd keeps of a kernel's call, for training on small inputs, where Python around the kernel is most of the time.
 *
 * It is what the classes of torch.autograd.Function in `ops` are, and may be left out: they are then taken. It is built from source
 * alone, for the torch and the Python that are there, and its file is named after both; no other is loaded.
 *
 * `row` and `point` take what the kernel would take in any case, and say None to all else: the ordinary way then decides, or has the
 * words for what is wrong. So does a backward pass: what is not plainly the kernel's goes to the Python function that came with the call.
 */
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/EmptyTensor.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/record_function.h>
#include <c10/core/SafePyObject.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/object_ptr.h>

extern "C" {
#include "cpu/normkit.h"
}

using namespace torch::autograd;
namespace compiled = torch::dynamo::autograd;
using at::Tensor;

namespace {

/* What a record holds after its plan and its rows, a letter an array: an input by its number, y, the statistics, the gradient that
 * came in, or the gradient of an input, A that of the first. A dash: nothing. */
struct Kind {
    const char *name, *forward, *backward;
    size_t plan;
    int (*push)(const void *), (*pull)(const void *);
};
Kind kinds[] = {{"_RowNorm", "0-12-ys", "0g-1sABC", sizeof(RowPlan)}, {"_Pointwise", "01234y", "0g123ABCDE", sizeof(PointPlan)}};
enum { ROW, POINT };
constexpr size_t LONGEST = sizeof(RowPlan) > sizeof(PointPlan) ? sizeof(RowPlan) : sizeof(PointPlan);
constexpr int MOST = 5;                                                      /* inputs */

union Plan {
    RowPlan row;
    PointPlan point;
    char bytes[LONGEST];
};

PyObject *unusual;                                                           /* as in python.c, but for what is asked below */

/* Whether nothing is around the call that must see torch's own operations. Needs the GIL. */
bool usual()
{
    if (at::impl::PythonTorchFunctionTLS::stack_len() || c10::impl::TorchDispatchModeTLS::stack_len() ||
        c10::impl::tls_is_dispatch_key_included(at::DispatchKey::FuncTorchDynamicLayerFrontMode) || torch::jit::tracer::isTracing() ||
        ForwardADLevel::try_get_by_idx(0))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(unusual); i++) {
        THPObjectPtr answer(PyObject_CallNoArgs(PyTuple_GET_ITEM(unusual, i)));
        int no = answer ? PyObject_Not(answer.get()) : -1;
        if (no < 0) throw python_error();
        if (!no) return false;
    }
    return true;
}

int type_of(const Tensor &x)
{
    if (!x.defined()) return NONE;
    switch (x.scalar_type()) {
    case at::kFloat: return F32;
    case at::kBFloat16: return BF16;
    case at::kHalf: return F16;
    case at::kDouble: return F64;
    default: return NONE;
    }
}

/* Whether the numbers of a tensor are on the CPU, with their sign, in a storage that still has all of them. */
bool plain(const Tensor &x)
{
    static const c10::DispatchKeySet known = c10::DispatchKeySet(c10::DispatchKey::CPU) |
        c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CPUBit) |
        c10::getAutocastRelatedKeySetFromBackend(c10::BackendComponent::CPUBit);
    return (x.key_set() | known) == known && x.layout() == at::kStrided && type_of(x) && x.numel() > 0 && x.storage().nbytes() >=
        size_t(x.storage_offset() + at::detail::computeStorageNbytes(x.sizes(), x.strides(), 1)) * x.itemsize();
}

Tensor empty(at::IntArrayRef sizes, at::ScalarType type) { return Tensor(at::detail::empty_cpu(sizes, type)); }

struct Record {
    alignas(16) char bytes[LONGEST + sizeof(int64_t) + 16 * sizeof(Array)];

    Record(const Kind &kind, const char *order, const Plan &plan, int64_t rows, const variable_list &inputs, const Tensor &stats,
           const Tensor &other, const variable_list &gradients)
    {
        char *end = bytes;
        memcpy(end, plan.bytes, kind.plan), end += kind.plan;
        memcpy(end, &rows, sizeof rows), end += sizeof rows;
        for (; *order; order++) {
            const Tensor *x = nullptr;
            if (*order >= 'A' && *order < 'A' + MOST) x = &gradients[*order - 'A'];
            else if (*order >= '0' && *order < '0' + MOST) x = &inputs[*order - '0'];
            else if (*order != '-') x = *order == 's' ? &stats : &other;
            Array array = {nullptr, 0};
            if (x && x->defined()) array = {x->mutable_data_ptr(), int64_t(x->nbytes())};
            memcpy(end, &array, sizeof array), end += sizeof array;
        }
    }
};

/* What was computed, and from what on the gradients are. */
struct Call {
    const Kind &kind;
    Plan plan;
    int64_t rows;
    std::vector<bool> needs;                                                 /* by input */
    c10::SafePyObject again;                                                 /* again(needs, grad, *what the forward pass saved) */

    variable_list gradients(Tensor grad, const variable_list &inputs) const
    {
        if (!grad.defined()) grad = at::zeros_like(inputs[0]);
        variable_list made(needs.size());
        return pulled(grad, inputs, made) ? made : in_python(grad, inputs);
    }

    /* Whether the kernel has made the gradients. */
    bool pulled(Tensor grad, const variable_list &inputs, variable_list &made) const
    {
        if (at::GradMode::is_enabled() || !plain(grad)) return false;
        for (const Tensor &one : inputs)
            if (one.defined() && !(plain(one) && one.is_contiguous())) return false;
        {
            pybind11::gil_scoped_acquire gil;
            if (!usual()) return false;
        }
        at::AutoDispatchBelowAutograd below;
        const Tensor &x = inputs[0];
        if (grad.strides() != x.strides()) grad = at::empty_like(x, grad.options()).copy_(grad);
        for (size_t i = 0; i < made.size(); i++)
            if (i == 0 || needs[i]) made[i] = empty(inputs[i].sizes(), inputs[i].scalar_type());
        return kind.pull(Record(kind, kind.backward, plan, rows, inputs, inputs.back(), grad, made).bytes) == DONE;
    }

    variable_list in_python(const Tensor &grad, const variable_list &inputs) const
    {
        pybind11::gil_scoped_acquire gil;
        THPObjectPtr given(PyTuple_New(2 + inputs.size())), wanted(PyTuple_New(needs.size()));
        if (!given || !wanted) throw python_error();
        for (size_t i = 0; i < needs.size(); i++) PyTuple_SET_ITEM(wanted.get(), i, PyBool_FromLong(needs[i]));
        PyTuple_SET_ITEM(given.get(), 0, wanted.release());
        PyTuple_SET_ITEM(given.get(), 1, THPVariable_Wrap(grad));
        for (size_t i = 0; i < inputs.size(); i++) PyTuple_SET_ITEM(given.get(), 2 + i, THPVariable_Wrap(inputs[i]));
        THPObjectPtr answer(PyObject_CallObject(again.ptr(getPyInterpreter()), given.get()));
        if (!answer) throw python_error();
        variable_list made(needs.size());
        for (size_t i = 0; i < made.size(); i++) {
            PyObject *one = PyTuple_GetItem(answer.get(), i);
            if (!one) throw python_error();
            if (one != Py_None) made[i] = THPVariable_Unpack(one);
        }
        return made;
    }
};

struct CallNode : Node {
    std::shared_ptr<const Call> call;
    std::vector<SavedVariable> saved;                                        /* inputs, and statistics where there are any */

    std::string name() const override { return std::string(call->kind.name) + "Backward"; }

    void release_variables() override
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto &one : saved) one.reset_data();
    }

    variable_list unpacked()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        variable_list inputs;
        for (auto &one : saved) inputs.push_back(one.unpack());
        return inputs;
    }

    variable_list apply(variable_list &&grads) override { return call->gradients(grads[0], unpacked()); }

    /* What compiled autograd asks of a node: what its work hangs on, and the work as a function of a graph. */
    void compiled_args(compiled::CompiledNodeArgs &args) const override
    {
        args.collect(std::string(call->kind.name) + std::string(call->plan.bytes, call->kind.plan));
        args.collect(uint64_t(call->rows));
        args.collect(saved, false);
    }

    variable_list apply_with_saved(const variable_list &grads, compiled::SwapSavedVariables &others) override
    {
        using Metadata = compiled::IValuePacker<std::vector<std::optional<InputMetadata>>>;
        others.before(saved);
        std::vector<c10::IValue> inputs;
        for (Tensor &one : unpacked()) inputs.emplace_back(one);
        const auto &compiler = compiled::getPyCompilerInterface();
        auto work = [call = call](const variable_list &grads, const std::vector<c10::IValue> &values) {
            variable_list inputs;
            for (const auto &one : values) inputs.push_back(one.toTensor());
            return call->gradients(grads[0], inputs);
        };
        std::vector<at::TypePtr> types(inputs.size(), at::TensorType::get());
        auto named = compiler->bind_function(others.get_py_compiler(), call->kind.name, work, types, true, false);
        auto made = compiler->call_function(others.get_py_compiler(), "apply_functional", named, grads, inputs,
                                            Metadata::pack(compiled::get_input_metadata(next_edges())));
        others.after(saved);
        return made;
    }
};

/* The kernel's result; undefined where it is not for here. `each`: statistics of a row, in float32 or in the type of a float64 x. */
Tensor pushed(Kind &kind, const Plan &plan, int64_t rows, int64_t each, const variable_list &inputs, PyObject *again)
{
    RECORD_FUNCTION(kind.name, c10::ArrayRef<const c10::IValue>());
    const Tensor &x = inputs[0];
    bool kept = compute_requires_grad(inputs);
    Tensor y, stats;
    {
        at::AutoDispatchBelowAutograd below;
        y = empty(x.sizes(), x.scalar_type());
        if (kept && each) stats = empty({rows * each}, type_of(x) == F64 ? at::kDouble : at::kFloat);
    }
    int answer;
    Record record(kind, kind.forward, plan, rows, inputs, stats, y, {});     /* up to here no other thread has a turn */
    {
        pybind11::gil_scoped_release others_run;
        answer = kind.push(record.bytes);
    }
    if (answer != DONE) return {};
    if (kept) {
        auto node = c10::make_intrusive<CallNode>();
        std::vector<bool> needs;
        for (const Tensor &one : inputs) needs.push_back(one.defined() && one.requires_grad());
        node->call = std::make_shared<const Call>(
            Call{kind, plan, rows, needs, c10::SafePyObject(Py_NewRef(again), getPyInterpreter())});
        node->set_next_edges(collect_next_edges(inputs));
        for (const Tensor &one : inputs) node->saved.emplace_back(one, false);
        if (each) node->saved.emplace_back(stats, false);
        set_history(y, node);
    }
    return y;
}

/* The tensors of a call and its constants, a plan without types and sizes; false where one is not plainly a kernel's. */
bool read(const Kind &kind, PyObject *const *given, int count, PyObject *constants, variable_list &inputs, Plan &plan)
{
    if (!PyBytes_Check(constants) || size_t(PyBytes_GET_SIZE(constants)) != kind.plan) return false;
    memcpy(plan.bytes, PyBytes_AS_STRING(constants), kind.plan);
    if (!kind.push || !usual()) return false;
    for (int i = 0; i < count; i++) {
        if (i && given[i] == Py_None) {
            inputs.emplace_back();
            continue;
        }
        if (!THPVariable_CheckExact(given[i])) return false;
        inputs.push_back(THPVariable_Unpack(given[i]));
        if (!plain(inputs.back()) || !inputs.back().is_contiguous()) return false;
    }
    return inputs[0].dim() > 0;
}

bool single(const Tensor &x) { return !x.defined() || x.numel() == 1; }
bool as_long(const Tensor &x, int64_t size) { return !x.defined() || (x.dim() == 1 && x.numel() == size); }

PyObject *answer(const Tensor &y)
{
    if (y.defined()) return THPVariable_Wrap(y);
    Py_RETURN_NONE;
}

/* row(x, weight, bias, constants, shape, again) */
PyObject *row(PyObject *, PyObject *const *given, Py_ssize_t count)
{
    HANDLE_TH_ERRORS
    variable_list inputs;
    Plan plan;
    if (count != 6 || !read(kinds[ROW], given, 3, given[3], inputs, plan)) Py_RETURN_NONE;
    const Tensor &x = inputs[0], &weight = inputs[1], &bias = inputs[2];
    int64_t dim = x.size(-1);
    if (given[4] != Py_None) {
        if (!PyTuple_Check(given[4]) || PyTuple_GET_SIZE(given[4]) != 1) Py_RETURN_NONE;
        int over = 0;
        PyObject *size = PyTuple_GET_ITEM(given[4], 0);
        if (!PyLong_Check(size) || PyLong_AsLongLongAndOverflow(size, &over) != dim || over) Py_RETURN_NONE;
    }
    bool shared = weight.defined() && dim != 1 && weight.dim() <= 1 && weight.numel() == 1;
    if (!(shared || as_long(weight, dim) || (dim == 1 && weight.dim() == 0)) || !as_long(bias, dim)) Py_RETURN_NONE;
    plan.row.x_type = type_of(x), plan.row.weight_type = type_of(weight), plan.row.bias_type = type_of(bias);
    plan.row.shared = shared, plan.row.dim = dim, plan.row.part = plan.row.part ? plan.row.part : dim;
    int each = plan.row.center ? 3 : plan.row.statistic == ZERO_SUM ? 2 : 1;
    return answer(pushed(kinds[ROW], plan, x.numel() / dim, each, inputs, given[5]));
    END_HANDLE_TH_ERRORS
}

/* point(x, alpha, shift, weight, bias, constants, again): features last. */
PyObject *point(PyObject *, PyObject *const *given, Py_ssize_t count)
{
    HANDLE_TH_ERRORS
    variable_list inputs;
    Plan plan;
    if (count != 7 || !read(kinds[POINT], given, 5, given[5], inputs, plan)) Py_RETURN_NONE;
    const Tensor &x = inputs[0];
    int64_t dim = x.size(-1);
    if (!inputs[1].defined() || !single(inputs[1]) || !single(inputs[2])) Py_RETURN_NONE;
    if (!as_long(inputs[3], dim) || !as_long(inputs[4], dim)) Py_RETURN_NONE;
    int32_t *types = &plan.point.x_type;
    for (int i = 0; i < MOST; i++) types[i] = type_of(inputs[i]);
    plan.point.by_row = 0, plan.point.dim = plan.point.width = dim;
    plan.point.scale = plan.point.function == ELN ? std::sqrt(double(dim)) : 1.0;
    return answer(pushed(kinds[POINT], plan, x.numel() / dim, 0, inputs, given[6]));
    END_HANDLE_TH_ERRORS
}

/* prepare(unusual, (forward, its record's bytes, backward, its record's bytes), ...): what may be around a call, and the kernels. */
PyObject *prepare(PyObject *, PyObject *given)
{
    for (size_t i = 0; i < std::size(kinds); i++) {
        unsigned long long push, pull;
        Py_ssize_t pushed, pulled;
        PyObject *one = PyTuple_GetItem(given, 1 + i);
        if (!one || !PyArg_ParseTuple(one, "KnKn", &push, &pushed, &pull, &pulled)) return nullptr;
        Py_ssize_t start = kinds[i].plan + sizeof(int64_t), each = sizeof(Array);
        if (pushed != start + each * strlen(kinds[i].forward) || pulled != start + each * strlen(kinds[i].backward)) {
            PyErr_SetString(PyExc_ImportError, "the node is of another version");
            return nullptr;
        }
        kinds[i].push = reinterpret_cast<int (*)(const void *)>(push), kinds[i].pull = reinterpret_cast<int (*)(const void *)>(pull);
    }
    unusual = Py_NewRef(PyTuple_GET_ITEM(given, 0));
    Py_RETURN_NONE;
}

PyMethodDef functions[] = {{"row", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(row)), METH_FASTCALL, nullptr},
                           {"point", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(point)), METH_FASTCALL, nullptr},
                           {"prepare", prepare, METH_VARARGS, nullptr},
                           {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "node", nullptr, -1, functions};

}

PyMODINIT_FUNC PyInit_node() { return PyModule_Create(&module); }
