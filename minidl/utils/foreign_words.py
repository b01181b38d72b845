"""Names of Keras and PyTorch, and what minidl has in their place. Each entry completes an error: "got 'mse'; ...".

Those of arguments are in foreign_arguments.py.
"""

from __future__ import annotations

Words = dict[str, str]

# Keys are compared as `hints.plain` writes them: in lower case, without underscores and a final "loss".

MODEL: Words = {
    "call": "use model.predict(X), or model.forward(X, training=True) for a backward by hand",
    "compile": "use Trainer(model, loss, optimizer, metrics)",
    "fit": "use Trainer(model, loss, optimizer).fit(X, y)",
    "evaluate": "use Trainer(model, loss, optimizer).evaluate(X, y)",
    "train": "use Trainer(model, loss, optimizer).fit(X, y); predict always computes as in inference",
    "eval": "use model.predict(X), which always computes as in inference",
    "trainonbatch": "use Trainer(model, loss, optimizer).train_batch(X, y)",
    "add": "use Sequential([layer, layer, ...]), the list of all layers",
    "append": "use Sequential([layer, layer, ...]), the list of all layers",
    "to": "leave it out: minidl computes on CPUs; the dtype is Sequential(..., dtype='float64')",
    "cuda": "leave it out: minidl computes on CPUs",
    "cpu": "leave it out: minidl computes on CPUs",
    "float": "use Sequential(..., dtype='float32')",
    "double": "use Sequential(..., dtype='float64')",
    "parameters": "use model.params, a dict; Trainer passes it to the optimizer, which takes only numbers: SGD(0.1)",
    "namedparameters": "use model.params.items()",
    "weights": "use model.params, a dict of Param(value, grad)",
    "trainableweights": "use model.params, a dict of Param(value, grad)",
    "trainablevariables": "use model.params, a dict of Param(value, grad)",
    "getweights": "use model.state_dict()",
    "setweights": "use model.load_state_dict(state)",
    "loadweights": "use Sequential.load(path), or model.load_state_dict(state)",
    "saveweights": "use model.save(path)",
    "zerograd": "leave it out: backward overwrites every gradient",
    "countparams": "use model.summary()",
    "getlayer": "use model.layers[i] or model[i]",
    "modules": "use model.layers",
    "children": "use model.layers",
    "requiresgrad": "use model.trainable = False",
    "freeze": "use model.trainable = False",
    "unfreeze": "use model.trainable = True",
    "pop": "use model[:-1], a copy without the last layer",
    "clone": "use copy.deepcopy(model)",
    "copy": "use copy.deepcopy(model)",
    "half": "leave it out: minidl computes in float32, or with Sequential(..., dtype='float64')",
    "numparameters": "use model.summary()",
    "predictclasses": "use model.predict(X).argmax(axis=1)",
}

OPTIMIZER: Words = {
    "zerograd": "leave it out: backward overwrites every gradient",
    "paramgroups": "use optimizer.lr, a number that may be set, layer.lr_mult, and model.set_param_group",
    "learningrate": "use optimizer.lr",
    "minimize": "use Trainer(model, loss, optimizer).fit(X, y)",
    "applygradients": "use optimizer.step(model.params, lr)",
}

TRAINER: Words = {
    "compile": "use the arguments of Trainer(model, loss, optimizer, metrics)",
    "train": "use trainer.fit(X, y)",
    "test": "use trainer.evaluate(X, y)",
    "validate": "use trainer.evaluate(X, y)",
    "trainonbatch": "use trainer.train_batch(X, y)",
    "save": "use trainer.save_checkpoint(path), or trainer.model.save(path) for the model alone",
    "load": "use Trainer.resume(path)",
    "backward": "use trainer.backward_step(dscores), after model.forward(X, training=True)",
    "score": "use trainer.evaluate(X, y), a dict of the loss and the metrics",
    "zerograd": "leave it out: backward overwrites every gradient",
}

HISTORY: Words = {
    "history": "use the object itself, a dict of lists: history['loss']",
    "epoch": "use history['epoch']",
}

LOSSES: Words = {
    "mse": "use 'mean_squared_error'",
    "l2": "use 'mean_squared_error'",
    "squared": "use 'mean_squared_error'",
    "mae": "use 'mean_absolute_error'",
    "l1": "use 'mean_absolute_error'",
    "absoluteerror": "use 'mean_absolute_error'",
    "smoothl1": "use 'huber'",
    "bce": "use 'binary_cross_entropy', on scores: leave out a last Sigmoid",
    "bcewithlogits": "use 'binary_cross_entropy'",
    "log": "use 'softmax_cross_entropy', on scores: leave out a last Softmax",
    "crossentropy": "use 'softmax_cross_entropy', on scores: leave out a last Softmax",
    "nll": "use 'softmax_cross_entropy', on scores: leave out a last Softmax",
    "softmax": "use 'softmax_cross_entropy'",
    "sparsecategoricalcrossentropy": "use 'softmax_cross_entropy', on scores: leave out a last Softmax",
    "categoricalcrossentropy": (
        "use 'softmax_cross_entropy', on scores: leave out a last Softmax; y may be one-hot rows or labels"
    ),
    "poissonnll": "use 'poisson'",
    "pinball": "use Pinball([0.1, 0.5, 0.9]) of minidl.losses, with the quantiles",
    "quantile": "use Pinball([0.1, 0.5, 0.9]) of minidl.losses, with the quantiles",
    "focal": (
        "for rare classes use SoftmaxCrossEntropy(weight=[...]) or BinaryCrossEntropy(pos_weight=...), for rare pixels "
        "'dice'"
    ),
}

METRICS: Words = {
    "acc": "use 'accuracy'",
    "categoricalaccuracy": "use 'accuracy'",
    "sparsecategoricalaccuracy": "use 'accuracy'",
    "topkcategoricalaccuracy": "use TopKAccuracy(k) of minidl.metrics",
    "meaniou": "use 'iou'",
    "binaryiou": "use 'iou'",
    "onehotiou": "use 'iou'",
    "onehotmeaniou": "use 'iou'",
    "jaccard": "use 'iou'",
    "jaccardindex": "use 'iou'",
    "jaccardscore": "use 'iou'",
    "dicescore": "use 'dice'",
    "dicecoefficient": "use 'dice'",
    "f1score": "use 'f1' for two classes, 'f1_macro' for more",
    "recallscore": "use 'recall' for two classes, 'recall_macro' for more",
    "precisionscore": "use 'precision' for two classes, 'precision_macro' for more",
    "meanabsoluteerror": "use 'mae'",
    "meansquarederror": "use 'mse'",
    "rootmeansquarederror": "use 'rmse'",
    "r2score": "use 'r2'",
    "auc": "use 'roc_auc'",
    "auroc": "use 'roc_auc'",
    "rocaucscore": "use 'roc_auc'",
    "averageprecisionscore": "use 'average_precision'",
    "prauc": "use 'average_precision'",
    "ap": "use 'average_precision'",
}

MONITORS: Words = {"acc": "use 'accuracy'", "valacc": "use 'val_accuracy'"}

OPTIMIZERS: Words = {
    "sgd": "use SGD(0.1) of minidl.optimizers",
    "momentum": "use SGD(0.1, momentum=0.9) of minidl.optimizers",
    "adam": "use Adam(0.001) of minidl.optimizers",
    "adamw": "use AdamW(0.001) of minidl.optimizers",
    "rmsprop": "use RMSprop(0.01) of minidl.optimizers",
    "adagrad": "use Adagrad(0.01) of minidl.optimizers",
    "muon": "use Muon(0.02) of minidl.optimizers",
}

SCHEDULES: Words = {
    "steplr": "use minidl.schedules.Step",
    "multisteplr": "use minidl.schedules.MultiStep",
    "exponentiallr": "use minidl.schedules.Exponential",
    "exponentialdecay": "use minidl.schedules.Exponential(lr, gamma), gamma = decay_rate ** (1 / decay_steps)",
    "polynomiallr": "use minidl.schedules.Polynomial",
    "cosineannealinglr": "use minidl.schedules.Cosine",
    "cosinedecay": "use minidl.schedules.Cosine",
    "onecyclelr": "use minidl.schedules.OneCycle",
    "triangular": "use minidl.schedules.OneCycle(max_lr, total_steps, anneal_strategy='linear')",
    "cycliclr": (
        "use minidl.schedules.OneCycle(max_lr, total_steps, anneal_strategy='linear'), or for several cycles a "
        "function of the step as the optimizer's lr"
    ),
    "reducelronplateau": "use minidl.callbacks.ReduceLROnPlateau",
    "learningratescheduler": "use a schedule of minidl.schedules as the optimizer's lr",
}

_CUSTOM_LAYER = "derive a class of your own from minidl.Layer, with forward and backward (docs/how-to/custom-layers.md)"

LAYERS: Words = {
    "linear": "use Dense(units)",
    "fullyconnected": "use Dense(units)",
    "convolution2d": "use Conv2D(filters, kernel_size)",
    "conv2dtranspose": "use ConvTranspose2D(filters, kernel_size)",
    "separableconv2d": "use DepthwiseConv2D(kernel_size) and Conv2D(filters, 1)",
    "maxpooling2d": "use MaxPool2D(pool_size)",
    "averagepooling2d": "use AvgPool2D(pool_size)",
    "averagepool2d": "use AvgPool2D(pool_size)",
    "globalaveragepooling2d": "use GlobalAvgPool2D()",
    "globalaveragepool2d": "use GlobalAvgPool2D()",
    "globalmaxpooling2d": "use GlobalMaxPool2D()",
    "batchnormalization": "use BatchNorm2D() for images, BatchNorm1D() for vectors",
    "batchnorm": "use BatchNorm2D() for images, BatchNorm1D() for vectors",
    "groupnormalization": "use GroupNorm(groups)",
    "layernormalization": "use LayerNorm()",
    "upsampling2d": "use Upsample2D(scale)",
    "upsamplingnearest2d": "use Upsample2D(scale)",
    "upsampling1d": (
        "use Reshape((channels, 1, length)), Upsample2D((1, scale)) and Reshape((channels, length * scale))"
    ),
    "resizing": "use Upsample2D(size=(height, width), mode='bilinear'), which also makes images smaller",
    "zeropadding1d": "use padding= of the next layer, or Pad1D(padding)",
    "zeropad1d": "use padding= of the next layer, or Pad1D(padding)",
    "constantpad1d": "use Pad1D(padding, value)",
    "constantpad2d": "use Pad2D(padding, value)",
    "reflectionpad1d": "use Pad1D(padding, mode='reflect')",
    "reflectionpad2d": "use Pad2D(padding, mode='reflect')",
    "replicationpad1d": "use Pad1D(padding, mode='replicate')",
    "replicationpad2d": "use Pad2D(padding, mode='replicate')",
    "circularpad1d": "use Pad1D(padding, mode='circular')",
    "circularpad2d": "use Pad2D(padding, mode='circular')",
    "cropping1d": "use Columns(start, stop, axis=1)",
    "cropping2d": "use Columns(top, -bottom, axis=1) and Columns(left, -right, axis=2)",
    "depthtospace": "use PixelShuffle(upscale_factor), or with mode='DCR', the order of TensorFlow",
    "spacetodepth": "use PixelUnshuffle(downscale_factor), or with mode='DCR', the order of TensorFlow",
    "zeropadding2d": "use padding= of the next layer, or Pad2D(padding)",
    "zeropad2d": "use padding= of the next layer, or Pad2D(padding)",
    "spatialdropout1d": "use Dropout2D(rate), for signals as for images",
    "spatialdropout2d": "use Dropout2D(rate)",
    "dropout1d": "use Dropout2D(rate), for signals as for images",
    "droppath": "use StochasticDepth(rate)",
    "instancenorm1d": "use GroupNorm(groups), with as many groups as channels",
    "instancenorm2d": "use GroupNorm(groups), with as many groups as channels",
    "instancenormalization": "use GroupNorm(groups), with as many groups as channels",
    "activation": "use ReLU(), Tanh() or another layer of minidl.layers",
    "swish": "use SiLU()",
    "rescaling": "use Rescale(scale)",
    "normalization": "use Normalize.from_data(X)",
    "input": "use Sequential(layers, input_shape=...)",
    "inputlayer": "use Sequential(layers, input_shape=...)",
    "add": "use Residual(*layers), or Parallel(first, second, join='add')",
    "concatenate": "use Parallel(first, second, join='concat')",
    "multiply": "use Parallel(first, second, join='multiply')",
    "maximum": "use Parallel(first, second, join='maximum')",
    "minimum": "use Parallel(first, second, join='minimum')",
    "glu": "use Parallel(Dense(n), [Dense(n), Sigmoid()], join='multiply'), or with convolutions",
    "unflatten": "use Reshape(shape)",
    "lambda": _CUSTOM_LAYER,
    "randomtranslation": "use RandomShift(max_shift)",
    "randomerasing": "use Cutout(size, rate=0.5)",
    "mixup": "use trainer.fit(X, y, mixup=0.2)",
    "cutmix": "use trainer.fit(X, y, cutmix=1.0)",
    "randombrightness": "use ColorJitter(brightness=0.2)",
    "randomcontrast": "use ColorJitter(contrast=0.2)",
    "randomsaturation": "use ColorJitter(saturation=0.2)",
    "randomhorizontalflip": "use RandomFlip()",
    "randomrotation90": "use RandomRotate90()",
    "d4": "use RandomRotate90() and RandomFlip(), two layers",
    "randomverticalflip": "use RandomFlip(horizontal=False, vertical=True)",
    "rnn": "use SimpleRNN(units), LSTM(units) or GRU(units)",
    "rnncell": "use SimpleRNN(units), which computes all steps",
    "lstmcell": "use LSTM(units), which computes all steps",
    "grucell": "use GRU(units), which computes all steps",
    "timedistributed": "use Conv1D(units, 1), a Dense(units) of each step",
    "masking": "minidl has no masks of steps: all sequences of an array have its length",
    "attention": f"minidl has no attention; {_CUSTOM_LAYER}",
    "multiheadattention": f"minidl has no attention; {_CUSTOM_LAYER}",
    "conv3d": f"minidl has no layers of volumes; {_CUSTOM_LAYER}",
    "maxpool3d": f"minidl has no layers of volumes; {_CUSTOM_LAYER}",
    "maxpooling3d": f"minidl has no layers of volumes; {_CUSTOM_LAYER}",
    "identity": "use Residual or Parallel, which have it built in",
    "module": "use minidl.Layer",
    "sequential": "use minidl.Sequential",
}

CALLBACKS: Words = {
    "modelcheckpoint": "use Checkpoint(path)",
    "learningratescheduler": "use a schedule of minidl.schedules as the optimizer's lr",
    "lrscheduler": "use a schedule of minidl.schedules as the optimizer's lr",
    "callback": "use any object with hooks, such as on_epoch_end",
    "terminateonnan": "leave it out: fit raises FloatingPointError before such a step",
}

PACKAGE: Words = {
    "nn": "use minidl.layers",
    "optim": "use minidl.optimizers",
    "keras": "use minidl.Sequential and minidl.layers",
    "model": "use minidl.Sequential",
    "models": "use minidl.Sequential",
    "functional": "use minidl.layers and minidl.losses",
    "tensor": "use a NumPy array",
    "loadmodel": "use minidl.Sequential.load(path)",
    "load": "use minidl.Sequential.load(path)",
    "save": "use model.save(path)",
    "manualseed": "use seed= of Sequential and Trainer",
}
