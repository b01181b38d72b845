"""Arguments of Keras, PyTorch and scikit-learn, and what minidl has in their place. Each entry completes an error.

`ARGUMENTS` holds for everything that has the argument which the answer begins with ("use stride=..."), or if the answer
begins otherwise. `OWNERS` comes first: words that mean something else in one class or method. `POSITIONS` answers more
positional arguments than a function has.
"""

from __future__ import annotations

from minidl.utils.foreign_words import Words

# Keys are compared as `hints.plain` writes them.

ARGUMENTS: Words = {
    # layers
    "activation": "use a layer of its own after this one, such as ReLU()",
    "strides": "use stride=",
    "dilationrate": "use dilation=",
    "bias": "use use_bias=",
    "inchannels": "use the number of outputs only: that of the inputs is inferred",
    "infeatures": "use the number of outputs only: that of the inputs is inferred",
    "inputdim": "use Sequential(layers, input_shape=...)",
    "inputshape": "use Sequential(layers, input_shape=...)",
    "batchinputshape": "use Sequential(layers, input_shape=...)",
    "outchannels": "use filters=",
    "outfeatures": "use units=",
    "numfeatures": "leave it out: the channels are inferred",
    "normalizedshape": "leave it out: the shape is inferred",
    "numgroups": "use groups=",
    "numchannels": "leave it out: the channels are inferred",
    "epsilon": "use eps=",
    "center": "use affine=",
    "scalefactor": "use scale=",
    "dataformat": "use arrays (n, channels, height, width)",
    "paddingmode": "use padding=, an int, a pair, 'same' or 'valid': the border is zero",
    "kernelregularizer": "use weight_decay= of the optimizer",
    "weightinitializer": "use kernel_initializer=",
    "init": "use kernel_initializer=",
    "inplace": "leave it out: memory is planned for the whole model",
    "p": "use rate=",
    "kernelsize": "use pool_size=",
    "poolsize": "use kernel_size=",
    "alpha": "use negative_slope=",
    "numembeddings": "use categories=",
    "embeddingdim": "use dim=",
    "outputdim": "use dim=",
    "paddingidx": "leave it out: the vector of each category is trained",
    "maskzero": "leave it out: the vector of each category is trained",
    "embeddingsinitializer": "use initializer=",
    "interpolation": "use mode=, 'nearest' or 'bilinear'",
    "fillmode": "use mode=, 'constant', 'reflect', 'replicate' or 'circular'",
    "stddev": "use std=",
    "reductionratio": "use squeeze_channels=, the number of channels divided by it",
    "reduction": "use squeeze_channels=, the number of channels divided by it",
    "name": "leave it out: a layer of a model is found by its index, model[0]",
    "trainable": "use layer.trainable = False",
    "device": "leave it out: minidl computes on CPUs",
    # optimizers
    "learningrate": "use lr=",
    "params": "use no parameters: Trainer passes those of the model",
    "parameters": "use no parameters: Trainer passes those of the model",
    "beta1": "use betas=(0.9, 0.999)",
    "beta2": "use betas=(0.9, 0.999)",
    "rho": "use alpha=",
    "decay": "use a schedule as lr=, such as minidl.schedules.Exponential(0.1, gamma)",
    "lrdecay": "use a schedule as lr=, such as minidl.schedules.Exponential(0.1, gamma)",
    "clipnorm": "use Trainer(..., clip_norm=...)",
    "globalclipnorm": "use Trainer(..., clip_norm=...)",
    "clipvalue": "use Trainer(..., clip_value=...)",
    # callbacks
    "mode": "use lower_is_better=True for mode='min', False for mode='max'",
    "restorebestweights": "leave it out: the weights of the best epoch are always restored",
    "savebestonly": "use monitor=: it saves only after epochs with a new best value",
    "saveweightsonly": "leave it out: a checkpoint has the whole trainer; model.save writes the weights",
    "filepath": "use path=",
    "savefreq": "use every_n_steps=",
    "basefolder": "use folder=",
    "logdir": "use folder=",
    "mindelta": "use threshold=, a fraction of the best value",
    "tmax": "use total_steps=",
    "etamin": "use min_lr=",
    # Trainer, fit, evaluate and predict
    "metrics": "use Trainer(model, loss, optimizer, metrics=...)",
    "optimizer": "use Trainer(model, loss, optimizer)",
    "batchsize": "leave it out: X is read in parts that fit into little memory",
    "verbose": "leave it out: only fit prints",
    "criterion": "use loss=",
    "lossfn": "use loss=",
    "x": "use X=",
    "initialepoch": "leave it out: Trainer.resume continues where a checkpoint stands",
    "validationfreq": "leave it out: fit validates after each epoch",
    "validationsteps": "use validation_data=(X, y) of the rows that you want",
    "validationbatchsize": "leave it out: results do not depend on it",
    "workers": "use num_threads= of Trainer",
    "numworkers": "use num_threads= of Trainer",
    "sampleweights": "use sample_weight=",
    "classweights": "use class_weight=",
    "nepochs": "use epochs=",
    "numepochs": "use epochs=",
    "training": "use model.forward(X, training=True)",
}

_LR = "use lr= of the optimizer, such as SGD(0.1)"
_OF_FIT = "use trainer.fit(X, y, {}=...)"
_MIXING = ("mixup", "cutmix")

# By the name of a class, for its constructor and those of derived classes, or of a method: "Trainer.fit".
OWNERS: dict[str, Words] = {
    "_Recurrent": {
        "hiddensize": "use units=",
        "inputsize": "use units=, the number of outputs of a step: that of the inputs is inferred",
        "numlayers": "use several layers, all but the last one with return_sequences=True",
        "batchfirst": "leave it out: arrays are (n, channels, length)",
        "bidirectional": "use Bidirectional(layer)",
        "gobackwards": "use reverse=, which leaves outputs at the places of their inputs",
        "bias": "use use_bias=",
        "activation": "leave it out: the functions of the gates are given; SimpleRNN has nonlinearity=",
        "dropout": "use Dropout(rate) or Dropout2D(rate) as a layer before this one",
        "recurrentdropout": "leave it out: minidl has no dropout between steps",
        "unitforgetbias": "use bias_initializer=, which is minidl.initializers.unit_forget_bias by default in an LSTM",
        "stateful": "leave it out: each sequence begins with a state of zeros",
        "returnstate": "use return_sequences=True: its last step is the state h",
        "projsize": "use Dense(units), or Conv1D(units, 1) after return_sequences=True",
    },
    "Embedding": {"inputdim": "use categories=", "inputlength": "leave it out: the length is inferred"},
    "OneHot": {"numclasses": "use categories=", "numtokens": "use categories="},
    **{name: {"paddingmode": "use mode="} for name in ("Pad1D", "Pad2D", "RandomCrop", "RandomShift")},
    "NativeLoss": {
        "fromlogits": "leave it out: outputs are always logits",
        "reduction": "leave it out: the loss of each example is a mean, and so is that of a batch",
    },
    "BinaryCrossEntropy": {"weight": "use pos_weight= for rare labels 1, output_weight= for each output"},
    "SoftmaxCrossEntropy": {"posweight": "use weight=, a number for each class"},
    "Trainer": {
        **{name.replace("_", ""): _OF_FIT.format(name) for name in ("epochs", "batch_size", "callbacks", "verbose")},
        **{word: _OF_FIT.format("epochs") for word in ("maxepochs", "nepochs", "numepochs")},
        **{name.replace("_", ""): _OF_FIT.format(name) for name in ("validation_data", "validation_split", "shuffle")},
        **{name.replace("_", ""): _OF_FIT.format(name) for name in ("sample_weight", "class_weight", *_MIXING)},
        "learningrate": _LR,
        "lr": _LR,
    },
    "Muon": {
        "excludelayers": "use exclude=, names of parameters such as '9.weight'",
        "excludeembeddings": "use exclude=, names of parameters such as '0.weight'",
        **{f"muon{letter}": "use ns_coefficients=, all three" for letter in "abc"},
        "rmsrate": "use adjust_lr_fn='match_rms_adamw' for 0.2, None for None",
        "adamlrratio": "use model.set_param_group(select, lr_mult=...)",
    },
    "BaseModel.set_param_group": {
        "lr": "use lr_mult=, a factor of the optimizer's lr",
        "learningrate": "use lr_mult=, a factor of the optimizer's lr",
        "weightdecay": "use decay_mult=, a factor of the optimizer's weight_decay",
        "params": "use select=, such as 'bias'",
    },
    "Trainer.fit": {
        "learningrate": _LR,
        "lr": _LR,
        "maxepochs": "use epochs=",
        **{f"{name}alpha": f"use {name}=" for name in _MIXING},
        "switchprob": "leave it out: with both mixup= and cutmix=, each has half of the steps",
    },
    "SequentialEstimator": {
        "maxiter": "use epochs=",
        "maxepochs": "use epochs=",
        "learningrateinit": "use lr=",
        "learningrate": "use lr=, a number or a schedule such as minidl.schedules.Cosine(0.1, total_steps); for "
        "'adaptive', callbacks=[ReduceLROnPlateau('loss', factor=0.2)]",
        "solver": "use optimizer=, such as 'adam' or 'sgd'",
        "alpha": "use optimizer=Adam(weight_decay=alpha / batch_size)",
        "weightdecay": "use optimizer=AdamW(weight_decay=0.01)",
        "momentum": "use optimizer=SGD(0.1, momentum=0.9)",
        "hiddenlayersizes": "use model=, a list of layers such as [Dense(100), ReLU(), Dense(outputs)]",
        "layers": "use model=, a list of layers such as [Dense(100), ReLU(), Dense(outputs)]",
        "activation": "use model=, a list of layers such as [Dense(100), ReLU(), Dense(outputs)]",
        **{name: f"leave it out: use Trainer(model, loss, optimizer).fit(X, y, {name}=...)" for name in _MIXING},
        "validationsplit": "use validation_fraction=, with early_stopping=True",
        "patience": "use n_iter_no_change=",
        "seed": "use random_state=",
    },
}

_INFERRED = "leave the sizes of inputs out: they are inferred"

# By the name of a class.
POSITIONS: Words = {
    "BatchNorm1D": f"{_INFERRED}, BatchNorm1D()",
    "BatchNorm2D": f"{_INFERRED}, BatchNorm2D()",
    "LayerNorm": f"{_INFERRED}, LayerNorm()",
    "RMSNorm": f"{_INFERRED}, RMSNorm()",
    "GroupNorm": f"{_INFERRED}, GroupNorm(groups)",
    "PReLU": f"{_INFERRED}, PReLU()",
}
